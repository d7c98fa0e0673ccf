package hosts

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/bootstrap"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
)

// idle is an agent ("plx agent start") that runs on a host, waits for a job's
// Spec, and answers requests meanwhile. With an idle agent, a launch needs
// only one SSH session on the host and runs no shell script there.
type idle struct {
	stream   *Stream
	calls    *protocol.Caller
	of       string                                                   // value of AgentHost.Binary for which this agent serves requests
	other    bool                                                     // the agent runs the plx version of this process, although AgentHost.Binary is another version
	plx      envsync.Blob                                             // binary that the agent runs; zero if unknown
	placed   func(seed func(context.Context) (bootstrap.Seed, error)) // reports to Seeds (hosts that pass plx on) that this host has plx; the function is bootstrap.Session.Done
	transfer chan struct{}                                            // semaphore: holds one element while a Pipe call transfers data
}

// idleFresh is the time after the last request during which an idle agent
// certainly still runs. An idle agent ends after protocol.MostSilence without
// a request.
const idleFresh = protocol.MostSilence - 15*time.Second

// greetingTime limits how long a newly started agent may take to send its first
// message.
const greetingTime = 25 * time.Second

// AnswerTime is the time limit of requests that need little work on the host.
const AnswerTime = 30 * time.Second

// answered reports whether the agent has replied to a request, with a result
// or with an error.
func answered(err error) bool {
	_, failure := errors.AsType[*protocol.Failure](err)
	return err == nil || failure
}

// Call sends a request to the host's idle agent and returns the reply. It
// starts an idle agent if none runs. If the agent itself reports an error, the
// error is a protocol.Failure. After any other error, Call ends the agent.
func Call[Out any](ctx context.Context, a *AgentHost, limit time.Duration, do protocol.Method, in any) (out Out, err error) {
	i, err := a.waiting(ctx)
	if err != nil {
		return out, err
	}
	err = i.call(ctx, limit, do, in, &out)
	a.keep(i, err)
	return out, err
}

// keep closes the idle agent i if err shows that the agent did not reply to a
// request.
func (a *AgentHost) keep(i *idle, err error) {
	if !answered(err) && a.idle.CompareAndSwap(i, nil) {
		i.stream.Close()
	}
}

// giveBack takes back an agent that the method own returned: the agent becomes
// the host's idle agent again. If err shows that the agent did not reply, or
// if the host has another idle agent by now, giveBack ends the agent instead.
func (a *AgentHost) giveBack(i *idle, err error) {
	switch {
	case !answered(err):
		i.stream.Close()
	case !a.idle.CompareAndSwap(nil, i):
		i.close()
	}
}

// Pipe makes a request for which the host's idle agent reads stdin and writes
// stdout. An agent serves only one such request at a time; further calls wait.
// A nil stdin is empty. Canceling ctx cancels the request. Pipe does not write
// to stdout after it has returned.
func Pipe(ctx context.Context, a *AgentHost, do protocol.Method, in any, stdin io.Reader, stdout io.Writer) error {
	for {
		i, err := a.waiting(ctx)
		if err != nil {
			return err
		}
		select {
		case i.transfer <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		over := i.ended() || a.idle.Load() != i // true if the agent ended while this call waited for the earlier Pipe call
		if !over {
			err = i.move(ctx, do, in, nil, func(_ context.Context, to *protocol.Pending) { sendInput(to, stdin) }, func(p protocol.Piece) error {
				_, err := stdout.Write(p.Data)
				return err
			})
			a.keep(i, err)
		}
		<-i.transfer
		if !over {
			return err
		}
	}
}

// move makes a request during which data flows in both directions. The
// function feed sends data to the agent until its ctx is done. move calls the
// function prints for each piece of output, and never after move has returned.
func (i *idle) move(ctx context.Context, do protocol.Method, in, out any, feed func(context.Context, *protocol.Pending), prints func(protocol.Piece) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var printing sync.Mutex
	var failed error
	stopped := false
	running, err := i.calls.Begin(do, in, func(p protocol.Piece) {
		printing.Lock()
		defer printing.Unlock()
		if stopped {
			return
		}
		if err := prints(p); err != nil {
			failed, stopped = err, true
			cancel(err)
		}
	})
	if err == nil {
		go feed(ctx, running)
		err = running.Wait(ctx, out)
	}
	printing.Lock()
	defer printing.Unlock()
	stopped = true
	return cmp.Or(failed, err)
}

// sendInput reads stdin and sends it to the agent as orders (data that follows
// a request). It returns at the end of stdin or of the request.
func sendInput(to *protocol.Pending, stdin io.Reader) {
	if stdin == nil {
		return
	}
	for piece := make([]byte, 128<<10); ; {
		n, err := stdin.Read(piece)
		if n > 0 {
			to.Order(piece[:n])
		}
		if err != nil {
			break // a read error looks like the end of stdin to the agent, which then detects that data is missing
		}
	}
	to.Order(nil)
}

// call sends a request to the agent, and waits for the reply for at most
// limit.
func (i *idle) call(ctx context.Context, limit time.Duration, do protocol.Method, in, out any) error {
	p, err := i.calls.Begin(do, in, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer to %s within %s", do, limit))
	defer cancel()
	err = p.Wait(ctx, out)
	if failure, ok := errors.AsType[*protocol.Failure](err); ok {
		return exit.WithHint(err, failure.Hint)
	}
	return err
}

// HasIdleAgent reports whether the host has an idle agent, which waits for a job.
func (h *Host) HasIdleAgent() bool { return h.idle.Load() != nil }

// waiting returns the host's idle agent (one without a job). If none runs, it
// starts one.
func (a *AgentHost) waiting(ctx context.Context) (*idle, error) {
	a.starting.Lock()
	defer a.starting.Unlock()
	if i := a.idle.Load(); i.answers(a) {
		return i, nil
	}
	a.closeIdle()
	i, err := a.newIdle(ctx)
	if err == nil {
		a.idle.Store(i)
	}
	return i, err
}

// own returns an agent for the exclusive use of the caller: the host's idle
// agent, or a new agent that the function begin starts.
func (a *AgentHost) own(ctx context.Context, begin func(context.Context) (*idle, error)) (*idle, error) {
	i := a.idle.Swap(nil)
	if i.answers(a) {
		return i, nil
	}
	i.close()
	return begin(ctx)
}

// newIdle starts an agent. If the job's agent binary is of another plx
// version, this process cannot talk to it. newIdle then sends the binary of
// this process to the host and starts it instead.
func (a *AgentHost) newIdle(ctx context.Context) (*idle, error) {
	i, err := a.begin(ctx)
	if _, other := errors.AsType[*protocol.VersionError](err); !other || a.set == nil {
		return i, err
	}
	i, err = a.place(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("replace the agent, which is of another plx version: %w", err)
	}
	i.placed(nil)
	i.of, i.other = a.Binary, true
	return i, nil
}

// begin starts an agent from a.Binary, which must already be on the host.
func (a *AgentHost) begin(ctx context.Context) (*idle, error) {
	i, err := a.start(ctx, bootstrap.Config{Expected: envsync.Blob{Sum: filepath.Base(a.Binary)}})
	if err == nil {
		i.of = a.Binary
	}
	return i, err
}

// place starts an agent of this plx version. If the host lacks the binary,
// place sends it first. If strict is true, place also replaces a damaged
// binary. After success, the caller must call the agent's field placed.
func (h *Host) place(ctx context.Context, strict bool) (*idle, error) {
	if h.set == nil {
		return nil, bootstrap.ErrMissing
	}
	i, err := h.start(ctx, bootstrap.Config{Strict: strict, Expected: h.set.agents.guess, Agent: h.set.agents.of, Copy: h.Copy, Seeds: h.set.seeds, Progress: h.set.showSent, BytesSent: h.set.countSent})
	if err == nil {
		i.of = envsync.BlobPath(i.plx.Sum)
		h.plx = i.of
	}
	return i, err
}

// ErrStuck means that an SSH connection was opened, but the host did not run a
// command on it in time.
var ErrStuck = errors.New("ForceCommand of its SSH server, the login shell, its start-up files or the disk of the home may hang")

// start starts an agent that then waits for a job. The configuration c names
// the binary that the agent runs.
func (h *Host) start(ctx context.Context, c bootstrap.Config) (*idle, error) {
	if err := h.Dial(ctx); err != nil {
		return nil, err
	}
	c.Host, c.Args = h.Name(), "agent start"
	wait := &startWatch{host: h, began: time.Now()}
	c.Begin, c.Begun = bootstrap.StartLimit, wait.started
	if h.startTime > 0 {
		c.Begin = min(c.Begin, h.startTime)
	}
	way := bootstrap.New(c)
	s := h.Stream(ctx, way.Script())
	done := wait.watch(ctx, s)
	err := way.Run(ctx, s)
	done()
	if err != nil {
		s.Close()
		var refused *bootstrap.RefusedError
		switch {
		case errors.As(err, &refused) && refused.Limited:
			err = exit.WithHint(err, bootstrap.LimitHint)
		case errors.Is(err, errReads):
			err = exit.WithHint(errReads, "let the file end where there is no terminal, before it reads: [ -t 0 ] || return")
		case errors.Is(err, bootstrap.ErrMissing):
			err = &transport.ExitError{Status: NotFound}
		case errors.Is(err, bootstrap.ErrStart):
			err = fmt.Errorf("no command ran within %v: %w", c.Begin, ErrStuck)
		}
		return nil, err
	}
	var conn *protocol.Conn
	err = bootstrap.Within(ctx, s, greetingTime, fmt.Errorf("its agent has not started within %s", greetingTime), func() (err error) {
		conn, err = protocol.OpenCalls(s)
		return err
	})
	// An agent of an old plx version cannot serve requests. It may end before
	// its first message arrives here. Its stderr then shows the cause.
	if said, ok := errors.AsType[*ScriptError](err); ok && strings.Contains(said.Stderr, protocol.KnowsNoCalls) {
		err = &protocol.VersionError{Got: "before calls"}
	}
	if err != nil {
		s.Close()
		way.Done(nil)
		if refused := limited(way, err); refused != nil {
			return nil, refused
		}
		return nil, &broken{notExecuted(err)}
	}
	return &idle{stream: s, calls: protocol.NewCaller(conn), plx: way.Plx, placed: way.Done, transfer: make(chan struct{}, 1)}, nil
}

// startWatch measures how long a host's login shell takes to start a command.
type startWatch struct {
	host  *Host
	began time.Time
	ended atomic.Bool // true if the command has started, or plx no longer waits for its start
}

const (
	// slowStart is how long a command's start may take before plx prints a
	// note about slow startup files.
	slowStart = 5 * time.Second
	// askAfter is how long a command's start may take before plx runs a second
	// command, to find the reason for the delay.
	askAfter = 10 * time.Second
	// askAgain is how much longer plx waits for the slow command after the
	// second command (see askAfter) has ended. After that, plx cancels the
	// slow command.
	askAgain = 2 * time.Second
)

// errReads means that a startup file of the login shell reads the stdin that
// is meant for the command, so that the command never starts.
var errReads = errors.New("a start-up file of the login shell (such as .bashrc) reads stdin, which is the command's")

// started records that the command has started, and prints a note if the start
// was slow.
func (w *startWatch) started() {
	took := time.Since(w.began)
	if w.ended.Swap(true) || took < slowStart || w.host.set == nil || w.host.slowShell.Swap(true) {
		return
	}
	w.host.set.printer.Printf("host %s: its login shell took %s to start a command: a start-up file (such as .bashrc) is slow there", w.host.Name(), took.Round(time.Second))
}

// watch finds out why a command's start takes long. It runs a second command
// with empty stdin. If that command starts, the startup files must block on
// reading stdin, and watch cancels s with errReads. The caller must call done.
func (w *startWatch) watch(ctx context.Context, s *Stream) (done func()) {
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		if !sleep(ctx, askAfter) || w.ended.Load() || w.host.Run(ctx, ":", nil, nil, nil) != nil || !sleep(ctx, askAgain) {
			return
		}
		if !w.ended.Swap(true) {
			s.Cancel(errReads)
		}
	})
	return func() {
		w.ended.Store(true)
		cancel()
		looking.Wait()
	}
}

// sleep waits for d. It returns false early if ctx is done.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// limited returns an error with a hint if the agent failed to start because of
// a resource limit (ulimit) of the host's shell. Otherwise it returns nil.
func limited(way *bootstrap.Session, err error) error {
	said, crashed := (*ScriptError)(nil), (*transport.ExitError)(nil)
	text := ""
	if errors.As(err, &said) {
		text = said.Stderr
	}
	if !errors.As(err, &crashed) {
		return nil
	}
	if refused := way.Limited(text); refused != nil {
		return exit.WithHint(refused, bootstrap.LimitHint)
	}
	return nil
}

// answers reports whether the agent still runs and serves requests for
// a.Binary.
func (i *idle) answers(a *AgentHost) bool {
	return i != nil && i.of == a.Binary && !i.ended() && i.calls.Idle() < idleFresh
}

// ended reports whether the agent or the connection to it has ended.
func (i *idle) ended() bool {
	select {
	case <-i.stream.Done():
		return true
	default:
		return false
	}
}

// close ends the agent and waits until it has exited. If i is nil, close does
// nothing.
func (i *idle) close() {
	if i != nil {
		_ = i.stream.Finish() // error ignored: no request is pending
	}
}

// Release ends the idle agents of all hosts, because no requests will follow
// for some time.
func (s *Set) Release() {
	var all sync.WaitGroup
	for _, h := range s.Hosts {
		all.Go(h.closeIdle)
	}
	all.Wait()
}

// closeIdle ends the host's idle agent, if there is one. This frees an SSH
// session on hosts that limit the number of sessions.
func (h *Host) closeIdle() { h.idle.Swap(nil).close() }

// Release ends the host's idle agent, if there is one.
func (h *Host) Release() { h.closeIdle() }

// Agent returns an AgentHost for the plx binary that Survey has found on this host or sent there.
func (h *Host) Agent() *AgentHost { return &AgentHost{Host: h, Binary: h.plx} }

// broken wraps the error of an agent that could not be executed or does not
// work correctly. Its binary may be damaged.
type broken struct{ error }

func (e *broken) Unwrap() error { return e.error }

// errDamaged means that the SHA-256 of the plx binary that runs on the host is
// wrong.
var errDamaged = errors.New("the plx binary on the host is damaged")

// Survey sends plx to the host if it is missing there, and starts an idle
// agent. It sets Facts. It also records which blobs (files in the host's
// cache) in likely the host has. After an error, these fields are unchanged.
func (h *Host) Survey(ctx context.Context, likely ...envsync.Blob) error {
	h.closeIdle()
	h.has, h.locks = nil, ""
	err := h.surveyOnce(ctx, false, likely)
	// The binary may be damaged: a power failure can leave it truncated or
	// full of zeros.
	if _, damaged := errors.AsType[*broken](err); damaged && !transport.IsLost(err) && ctx.Err() == nil {
		if errors.Is(err, errDamaged) {
			h.noteDamaged("plx")
		}
		err = h.surveyOnce(ctx, true, likely)
	}
	return err
}

// noteDamaged prints a note that a cached file on the host is damaged and will be
// sent again if needed.
func (h *Host) noteDamaged(what string) {
	if h.set != nil {
		h.set.printer.Printf("host %s: %s is damaged in ~/.plx/blobs there; it is sent again", h.Name(), what)
	}
}

func (h *Host) surveyOnce(ctx context.Context, strict bool, likely []envsync.Blob) error {
	i, err := h.place(ctx, strict)
	if err != nil {
		return err
	}
	if err := i.survey(ctx, h, likely); err != nil {
		i.placed(nil)
		i.stream.Close()
		return err
	}
	h.idle.Store(i)
	i.placed(h.seed)
	return nil
}

// seed asks the host's agent to serve the plx binary to other hosts, and
// returns where they can download it.
func (h *Host) seed(ctx context.Context) (bootstrap.Seed, error) {
	addr, err := h.DataAddr()
	if err != nil {
		return bootstrap.Seed{}, err
	}
	want := protocol.Seed{Addr: addr, Low: h.ports[0], High: h.ports[1], Token: rand.Text()}
	port, err := Call[int](ctx, h.Agent(), AnswerTime, protocol.DoSeed, want)
	return bootstrap.Seed{Host: addr, Port: strconv.Itoa(port), Token: want.Token}, err
}

// UpdateFacts asks the host's agent for the host's facts (platform,
// addresses), and stores them in Facts.
func (a *AgentHost) UpdateFacts(ctx context.Context) error {
	here, err := Call[protocol.Surveyed](ctx, a, AnswerTime, protocol.DoSurvey, protocol.Survey{})
	if err == nil {
		a.Facts, err = factsOf(here)
	}
	return err
}

func factsOf(here protocol.Surveyed) (envsync.Facts, error) {
	facts, err := envsync.ReadFacts(here.Facts)
	if err == nil && facts.OS != "linux" {
		err = &PlatformError{facts.Platform}
	}
	return facts, err
}

// survey asks the agent for facts about the host (such as its platform), and
// which of the files in likely are in the cache on the host. It stores the
// reply in h.
func (i *idle) survey(ctx context.Context, h *Host, likely []envsync.Blob) error {
	want := protocol.Survey{Blobs: map[string]int64{i.plx.Sum: i.plx.Size}}
	for _, b := range likely {
		want.Blobs[b.Sum] = b.Size
	}
	var here protocol.Surveyed
	if err := i.call(ctx, AnswerTime, protocol.DoSurvey, want, &here); err != nil {
		if failure, ok := errors.AsType[*protocol.Failure](err); ok {
			err = &protocol.Failure{Code: failure.Code, Text: bootstrap.ExplainHomeError(failure.Text), Hint: failure.Hint}
		}
		return err
	}
	if !slices.Contains(here.Has, i.plx.Sum) {
		return &broken{errDamaged}
	}
	for _, b := range likely {
		if slices.Contains(here.Damaged, b.Sum) {
			h.noteDamaged(b.Name)
		}
	}
	facts, err := factsOf(here)
	if err == nil {
		h.Facts, h.has, h.locks = facts, here.Has, here.Locks
	}
	return err
}

// FindGPUs asks the host's agent for its GPUs, and stores the reply in Report.
// If nvidia-smi is slow, it shows a note in tally, which may be nil.
func (a *AgentHost) FindGPUs(ctx context.Context, tally *console.HostProgress) error {
	limit := gpuprobe.Limit(a.probeTime)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has not reported its GPUs within %v", limit))
	defer cancel()
	defer time.AfterFunc(gpuprobe.SlowAfter, func() { a.slow(tally) }).Stop()
	answer, err := Call[gpuprobe.Output](ctx, a, limit, protocol.DoProbe, protocol.Probe{ToolTime: a.probeTime})
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	a.Report = answer.Report()
	return nil
}

// Locks returns those lines of the host's /proc/net/unix that show which GPUs
// plx launches have reserved. The lines are from the last survey (first call
// to the host).
func (h *Host) Locks() string { return h.locks[:min(len(h.locks), protocol.MostLocks)] }
