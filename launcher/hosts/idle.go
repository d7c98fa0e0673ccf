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

// idle is a "plx agent start" that waits for the Spec of a job, and answers calls until then. So
// a launch needs one session on a host that has plx, and starts none of the programs of the
// scripts there.
type idle struct {
	stream *Stream
	calls  *protocol.Caller
	of     string                                                   // Binary of the AgentHosts that it answers
	other  bool                                                     // it is of this version of plx, and that one of another
	plx    envsync.Blob                                             // what it runs, as far as that is known
	placed func(seed func(context.Context) (bootstrap.Seed, error)) // see bootstrap.Session.Done
	moving chan struct{}                                            // holds one element while a call moves bytes
}

// fresh is how long after the last question an agent surely waits for the next.
const fresh = protocol.MostSilence - 15*time.Second

// idleTime bounds the greeting of an agent, and its answer to the survey, for which files may have
// to be hashed.
const idleTime = 25 * time.Second

// AnswerTime bounds the answer to a call for which the agent does little.
const AnswerTime = 30 * time.Second

// answered reports whether a call was answered, be it by an error.
func answered(err error) bool {
	_, failure := errors.AsType[*protocol.Failure](err)
	return err == nil || failure
}

// Call asks the agent that waits for a job on the host, which is started if none does. After an
// error that the agent has not answered itself, it is ended. The error of a method is a
// protocol.Failure.
func Call[Out any](ctx context.Context, a *AgentHost, limit time.Duration, do protocol.Method, in any) (out Out, err error) {
	i, err := a.waiting(ctx)
	if err != nil {
		return out, err
	}
	err = i.call(ctx, limit, do, in, &out)
	a.keep(i, err)
	return out, err
}

// keep ends an agent that waits, unless it has answered.
func (a *AgentHost) keep(i *idle, err error) {
	if !answered(err) && a.idle.CompareAndSwap(i, nil) {
		i.stream.Close()
	}
}

// giveBack has an agent that was the caller's alone wait again. It ends one that has not answered,
// and one beside which another one waits by now.
func (a *AgentHost) giveBack(i *idle, err error) {
	switch {
	case !answered(err):
		i.stream.Close()
	case !a.idle.CompareAndSwap(nil, i):
		i.close()
	}
}

// Pipe asks the agent that waits on the host, as Call does, for something that reads stdin and
// writes stdout, one at a time. A nil stdin is empty. ctx bounds it. Nothing is written after it has
// returned.
func Pipe(ctx context.Context, a *AgentHost, do protocol.Method, in any, stdin io.Reader, stdout io.Writer) error {
	for {
		i, err := a.waiting(ctx)
		if err != nil {
			return err
		}
		select {
		case i.moving <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		over := i.ended() || a.idle.Load() != i // who was before has ended it
		if !over {
			err = i.move(ctx, do, in, nil, func(_ context.Context, to *protocol.Pending) { pour(to, stdin) }, func(p protocol.Piece) error {
				_, err := stdout.Write(p.Data)
				return err
			})
			a.keep(i, err)
		}
		<-i.moving
		if !over {
			return err
		}
	}
}

// move does a call that gets orders from feed, until ctx ends, and prints. prints is not called any
// more once move has returned. ctx bounds it.
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

// pour sends what stdin has as orders, until it ends or the call does.
func pour(to *protocol.Pending, stdin io.Reader) {
	if stdin == nil {
		return
	}
	for piece := make([]byte, 128<<10); ; {
		n, err := stdin.Read(piece)
		if n > 0 {
			to.Order(piece[:n])
		}
		if err != nil {
			break // what the other side lacks it misses
		}
	}
	to.Order(nil)
}

// call asks the agent, in bounded time.
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

// Waits reports whether an agent waits for a job on the host.
func (h *Host) Waits() bool { return h.idle.Load() != nil }

// waiting returns the agent that waits on the host. It starts one if there is none.
func (a *AgentHost) waiting(ctx context.Context) (*idle, error) {
	a.starting.Lock()
	defer a.starting.Unlock()
	if i := a.idle.Load(); i.answers(a) {
		return i, nil
	}
	a.makeRoom()
	i, err := a.newIdle(ctx)
	if err == nil {
		a.idle.Store(i)
	}
	return i, err
}

// own returns an agent that is the caller's alone: the one that waits on the host, or one that
// begin starts.
func (a *AgentHost) own(ctx context.Context, begin func(context.Context) (*idle, error)) (*idle, error) {
	i := a.idle.Swap(nil)
	if i.answers(a) {
		return i, nil
	}
	i.close()
	return begin(ctx)
}

// newIdle starts an agent. If that of the job is of another version of plx, which knows other
// calls, this plx is placed.
func (a *AgentHost) newIdle(ctx context.Context) (*idle, error) {
	i, err := a.begin(ctx)
	if _, other := errors.AsType[*protocol.VersionError](err); !other || a.set == nil {
		return i, err
	}
	i, err = a.place(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("send this version of plx, since its agent is of another one: %w", err)
	}
	i.placed(nil)
	i.of, i.other = a.Binary, true
	return i, nil
}

// begin starts the agent, which is there.
func (a *AgentHost) begin(ctx context.Context) (*idle, error) {
	i, err := a.start(ctx, bootstrap.Config{Guess: envsync.Blob{Sum: filepath.Base(a.Binary)}})
	if err == nil {
		i.of = a.Binary
	}
	return i, err
}

// place starts this plx, after bringing it to the host if it is missing; with strict also if it is
// damaged. Whoever gets no error calls placed.
func (h *Host) place(ctx context.Context, strict bool) (*idle, error) {
	if h.set == nil {
		return nil, bootstrap.ErrMissing
	}
	i, err := h.start(ctx, bootstrap.Config{Strict: strict, Guess: h.set.agents.guess, Agent: h.set.agents.of, Copy: h.Copy, Seeds: h.set.seeds, Progress: h.set.moved, Left: h.set.left})
	if err == nil {
		i.of = envsync.BlobPath(i.plx.Sum)
		h.plx = i.of
	}
	return i, err
}

// ErrStuck is the error of a host on which no command runs.
var ErrStuck = errors.New("ForceCommand of its SSH server, the login shell, its start-up files or the disk of the home may hang")

// start starts an agent that waits.
func (h *Host) start(ctx context.Context, c bootstrap.Config) (*idle, error) {
	if err := h.Dial(ctx); err != nil {
		return nil, err
	}
	c.Host, c.Act = h.Name(), "agent start"
	wait := &start{host: h, began: time.Now()}
	c.Begin, c.Begun = bootstrap.StartLimit, wait.over
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
		var refused *bootstrap.Refused
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
	err = bootstrap.Within(ctx, s, idleTime, fmt.Errorf("its agent has not begun within %s", idleTime), func() (err error) {
		conn, err = protocol.OpenCalls(s)
		return err
	})
	// An agent that knows no calls may end before its own greeting has left.
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
	return &idle{stream: s, calls: protocol.NewCaller(conn), plx: way.Plx, placed: way.Done, moving: make(chan struct{}, 1)}, nil
}

// start is a command that the login shell of a host is to start.
type start struct {
	host  *Host
	began time.Time
	ended atomic.Bool // it was started, or given up
}

const (
	// slowStart is how long a start may take before the user is told what is slow.
	slowStart = 5 * time.Second
	// askAfter is how long a start may take before another session looks for the reason.
	askAfter = 10 * time.Second
	// askAgain is how much longer than that session the start may take.
	askAgain = 2 * time.Second
)

// errReads says why no command starts.
var errReads = errors.New("a start-up file of the login shell (such as .bashrc) reads stdin, which is the command's")

// over notes that the command was started.
func (w *start) over() {
	took := time.Since(w.began)
	if w.ended.Swap(true) || took < slowStart || w.host.set == nil || w.host.slowShell.Swap(true) {
		return
	}
	w.host.set.printer.Printf("host %s: its login shell took %s to start a command: a start-up file (such as .bashrc) is slow there", w.host.Name(), took.Round(time.Second))
}

// watch looks for the reason if the start takes long: with stdin at its end, a start-up file that
// reads ends. It cancels s then. The caller calls done in the end.
func (w *start) watch(ctx context.Context, s *Stream) (done func()) {
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

// sleep waits, and reports whether ctx has not ended.
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

// limited returns the error of an agent that could not begin because of a limit; nil: that is not
// why.
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

// answers reports whether the agent is there and answers what is asked of a.
func (i *idle) answers(a *AgentHost) bool {
	return i != nil && i.of == a.Binary && !i.ended() && i.calls.Idle() < fresh
}

// ended reports whether the agent has ended, or its connection.
func (i *idle) ended() bool {
	select {
	case <-i.stream.Done():
		return true
	default:
		return false
	}
}

// close ends the agent, and waits for that. A nil agent is none.
func (i *idle) close() {
	if i != nil {
		_ = i.stream.Finish() // nothing was asked of it
	}
}

// Release ends the agents that wait on the hosts, since nothing is asked of them for long.
func (s *Set) Release() {
	var all sync.WaitGroup
	for _, h := range s.Hosts {
		all.Go(h.makeRoom)
	}
	all.Wait()
}

// makeRoom ends an agent that waits for a job: the host allows no more sessions.
func (h *Host) makeRoom() { h.idle.Swap(nil).close() }

// Release ends the agent that waits on the host, if one does.
func (h *Host) Release() { h.makeRoom() }

// Agent returns the host as one with the agent of the plx that was placed there.
func (h *Host) Agent() *AgentHost { return &AgentHost{Host: h, Binary: h.plx} }

// broken is the error of an agent that runs, or should, and is not as it should be.
type broken struct{ error }

func (e *broken) Unwrap() error { return e.error }

// errDamaged says that the plx of a host runs, and has not the content that it should have.
var errDamaged = errors.New("plx is damaged there")

// Meet places plx if that is missing, whose agent then waits. It writes Facts, and asks which of the
// likely blobs the host has. With an error nothing is written.
func (h *Host) Meet(ctx context.Context, likely ...envsync.Blob) error {
	h.makeRoom()
	h.has, h.locks = nil, ""
	err := h.meetOnce(ctx, false, likely)
	// It may be damaged: a power cut leaves zeros, or a part.
	if _, damaged := errors.AsType[*broken](err); damaged && !transport.IsLost(err) && ctx.Err() == nil {
		if errors.Is(err, errDamaged) {
			h.mend("plx")
		}
		err = h.meetOnce(ctx, true, likely)
	}
	return err
}

// mend tells that a file of the host is wrong, and is sent again if it is needed.
func (h *Host) mend(what string) {
	if h.set != nil {
		h.set.printer.Printf("host %s: %s is damaged in ~/.plx/blobs there; it is sent again", h.Name(), what)
	}
}

func (h *Host) meetOnce(ctx context.Context, strict bool, likely []envsync.Blob) error {
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

// seed has the host give its plx to others.
func (h *Host) seed(ctx context.Context) (bootstrap.Seed, error) {
	addr, err := h.DataAddr()
	if err != nil {
		return bootstrap.Seed{}, err
	}
	want := protocol.Seed{Addr: addr, Low: h.ports[0], High: h.ports[1], Token: rand.Text()}
	port, err := Call[int](ctx, h.Agent(), AnswerTime, protocol.DoSeed, want)
	return bootstrap.Seed{Host: addr, Port: strconv.Itoa(port), Token: want.Token}, err
}

// Learn writes Facts as the host's agent tells them.
func (a *AgentHost) Learn(ctx context.Context) error {
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

// survey asks for what the host is and has.
func (i *idle) survey(ctx context.Context, h *Host, likely []envsync.Blob) error {
	want := protocol.Survey{Blobs: map[string]int64{i.plx.Sum: i.plx.Size}}
	for _, b := range likely {
		want.Blobs[b.Sum] = b.Size
	}
	var here protocol.Surveyed
	if err := i.call(ctx, AnswerTime, protocol.DoSurvey, want, &here); err != nil {
		if failure, ok := errors.AsType[*protocol.Failure](err); ok {
			err = &protocol.Failure{Code: failure.Code, Text: bootstrap.HomeTrouble(failure.Text), Hint: failure.Hint}
		}
		return err
	}
	if !slices.Contains(here.Has, i.plx.Sum) {
		return &broken{errDamaged}
	}
	for _, b := range likely {
		if slices.Contains(here.Damaged, b.Sum) {
			h.mend(b.Name)
		}
	}
	facts, err := factsOf(here)
	if err == nil {
		h.Facts, h.has, h.locks = facts, here.Has, here.Locks
	}
	return err
}

// FindGPUs writes Report as the agent of the host tells it. The tally, which may be nil, shows that
// nvidia-smi is slow.
func (a *AgentHost) FindGPUs(ctx context.Context, tally *console.Tally) error {
	limit := gpuprobe.Limit(a.probeTime)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has not listed its GPUs within %v", limit))
	defer cancel()
	defer time.AfterFunc(gpuprobe.SlowAfter, func() { a.slow(tally) }).Stop()
	answer, err := Call[gpuprobe.Answer](ctx, a, limit, protocol.DoProbe, protocol.Probe{ToolTime: a.probeTime})
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	a.Report = answer.Report()
	return nil
}

// Locks returns the host's lines of /proc/net/unix on booked GPUs, as the last survey told them.
func (h *Host) Locks() string { return h.locks[:min(len(h.locks), protocol.MostLocks)] }
