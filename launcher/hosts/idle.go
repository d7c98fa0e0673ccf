package hosts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
)

// idle is a "plx agent start" that waits for the Spec of a job, and answers calls until then. So
// a launch needs one session on a host that has plx, and starts none of the programs of the
// scripts there.
type idle struct {
	stream *Stream
	calls  *protocol.Caller
	of     string       // Binary of the AgentHosts that it answers
	other  bool         // it is of this version of plx, and that one of another
	asked  atomic.Int64 // when it was asked last, or answered, in nanoseconds since began
}

// began is when this process began.
var began = time.Now()

// fresh is how long after the last question an agent surely waits for the next.
const fresh = protocol.MostSilence - 15*time.Second

// begin sends a call.
func (i *idle) begin(do protocol.Method, in any) (*protocol.Pending, error) {
	i.asked.Store(int64(time.Since(began)))
	return i.calls.Begin(do, in)
}

// errSurvey says that an agent did not answer as one does. The scripts tell what is wrong.
var errSurvey = errors.New("the agent has not answered the survey")

// idleTime bounds the start of an agent, and its answer to the survey, for which files may have
// to be hashed.
const idleTime = envsync.InspectLimit

// AnswerTime bounds the answer to a call for which the agent does little.
const AnswerTime = 30 * time.Second

// Call asks the agent that waits for a job on the host, which is started if none does. After an
// error that the agent has not answered itself, it is ended. The error of a method is a
// protocol.Failure.
func Call[Out any](ctx context.Context, a *AgentHost, limit time.Duration, do protocol.Method, in any) (out Out, err error) {
	i, err := a.waiting(ctx)
	if err != nil {
		return out, err
	}
	err = i.call(ctx, limit, do, in, &out)
	if failure := (*protocol.Failure)(nil); err != nil && !errors.As(err, &failure) && a.idle.CompareAndSwap(i, nil) {
		i.stream.Close()
	}
	return out, err
}

// call asks the agent, in bounded time.
func (i *idle) call(ctx context.Context, limit time.Duration, do protocol.Method, in, out any) error {
	p, err := i.begin(do, in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer to %s within %s", do, limit))
	defer cancel()
	err = p.Wait(ctx, out)
	i.asked.Store(int64(time.Since(began)))
	if failure := (*protocol.Failure)(nil); errors.As(err, &failure) {
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
// calls, it sends the host the one of this plx.
func (a *AgentHost) newIdle(ctx context.Context) (*idle, error) {
	i, err := a.beginSoon(ctx)
	if version := (*protocol.VersionError)(nil); !errors.As(err, &version) || a.agents == nil {
		return i, err
	}
	if a.Facts.OS == "" {
		if err := a.Inspect(ctx); err != nil {
			return nil, err
		}
	}
	agent, err := a.agents.of(ctx, a.Facts.Platform)
	if err == nil {
		err = a.Send(ctx, agent)
	}
	if err != nil {
		return nil, fmt.Errorf("send this version of plx, since its agent is of another one: %w", err)
	}
	i, err = (&AgentHost{Host: a.Host, Binary: envsync.BlobPath(agent.Sum)}).beginSoon(ctx)
	if err == nil {
		i.of, i.other = a.Binary, true
	}
	return i, err
}

// beginSoon is begin in bounded time.
func (a *AgentHost) beginSoon(ctx context.Context) (*idle, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, idleTime, fmt.Errorf("its agent has not begun within %s", idleTime))
	defer cancel()
	return a.begin(ctx)
}

// begin starts the agent. ctx bounds its greeting only.
func (a *AgentHost) begin(ctx context.Context) (*idle, error) {
	s := a.Stream(ctx, a.shell("start"))
	stop := context.AfterFunc(ctx, func() { s.Close() })
	conn, err := protocol.OpenCalls(agentStream{s})
	if !stop() {
		s.Close()
		return nil, context.Cause(ctx)
	}
	// An agent that knows no calls may end before its own greeting has left.
	if said := (*ScriptError)(nil); errors.As(err, &said) && strings.Contains(said.Stderr, protocol.KnowsNoCalls) {
		err = &protocol.VersionError{Got: "before calls"}
	}
	if err != nil {
		return nil, notExecuted(err)
	}
	i := &idle{stream: s, calls: protocol.NewCaller(conn), of: a.Binary}
	i.asked.Store(int64(time.Since(began)))
	return i, nil
}

// answers reports whether the agent is there and answers what is asked of a.
func (i *idle) answers(a *AgentHost) bool {
	return i != nil && i.of == a.Binary && !i.ended() && time.Since(began)-time.Duration(i.asked.Load()) < fresh
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

// Meet writes Facts. It asks an agent of an earlier launch if there is one, which then waits, and
// else a script.
func (h *Host) Meet(ctx context.Context, likely []envsync.Blob) error {
	err := h.ask(ctx, likely, false, nil)
	if err == nil || errors.Is(err, envsync.ErrStuck) {
		return err
	}
	return h.Inspect(ctx)
}

// ask writes Facts, has and, if GPUs are asked for, Report as an agent of an earlier launch answers
// them, which then waits. With an error nothing is written. The error is envsync.ErrStuck if no
// command runs on the host.
func (h *Host) ask(ctx context.Context, likely []envsync.Blob, gpus bool, probes *console.Tally) error {
	if len(likely) == 0 {
		return errSurvey
	}
	a := AgentHost{Host: h, Binary: envsync.BlobPath(likely[0].Sum)}
	greeting, cancel := context.WithTimeoutCause(ctx, idleTime, envsync.ErrStuck)
	defer cancel()
	i, err := a.begin(greeting)
	if err == nil {
		err = i.survey(ctx, h, likely, gpus, probes)
		if err != nil {
			i.stream.Close()
		}
	}
	if err == nil {
		h.idle.Store(i)
	}
	return err
}

// survey asks for what the host is and has, and for its GPUs if they are wanted, at once.
func (i *idle) survey(ctx context.Context, h *Host, likely []envsync.Blob, gpus bool, probes *console.Tally) error {
	want := protocol.Survey{Blobs: map[string]int64{}}
	for _, b := range likely {
		want.Blobs[b.Sum] = b.Size
	}
	asked, err := i.begin(protocol.DoSurvey, want)
	if err != nil {
		return err
	}
	var probed *protocol.Pending
	if gpus {
		if probed, err = i.begin(protocol.DoProbe, protocol.Probe{ToolTime: h.probeTime}); err != nil {
			return err
		}
	}
	first, cancel := context.WithTimeoutCause(ctx, idleTime, errSurvey)
	defer cancel()
	var here protocol.Surveyed
	if err := asked.Wait(first, &here); err != nil {
		return err
	}
	facts, err := envsync.ReadFacts(here.Facts)
	if err != nil {
		return err
	}
	if gpus {
		if h.Report, err = h.found(ctx, probed, probes); err != nil {
			return err
		}
	}
	h.Facts, h.has, h.locks = facts, here.Has, &here.Locks
	return nil
}

// found waits for an agent's answer about GPUs. The tally, which may be nil, shows that
// nvidia-smi is slow.
func (h *Host) found(ctx context.Context, asked *protocol.Pending, tally *console.Tally) (gpuprobe.Report, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, gpuprobe.Limit(h.probeTime), errors.New("it has not listed its GPUs"))
	defer cancel()
	defer time.AfterFunc(gpuprobe.SlowAfter, func() { h.slow(tally) }).Stop()
	var answer protocol.GPUs
	err := asked.Wait(ctx, &answer)
	return gpuprobe.Answer(answer).Report(), err
}

// Reprobe writes the host's Report anew.
func (a *AgentHost) Reprobe(ctx context.Context) error {
	i, err := a.waiting(ctx)
	if err != nil {
		return err
	}
	asked, err := i.begin(protocol.DoProbe, protocol.Probe{ToolTime: a.probeTime})
	if err != nil {
		return err
	}
	report, err := a.found(ctx, asked, nil)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	a.Report = report
	return nil
}

// Locks returns the host's lines of /proc/net/unix on booked GPUs, if an agent has answered the
// last survey.
func (h *Host) Locks() (lines string, known bool) {
	if h.locks == nil {
		return "", false
	}
	return *h.locks, true
}

// Furnish asks the host's agent whether the host has all files of a folder, and to make the
// job's working directory of it if there is a source. It reports false if that was not done:
// then the files are to be sent.
func (a *AgentHost) Furnish(ctx context.Context, want protocol.Furnish, limit time.Duration) bool {
	answer, err := Call[protocol.Furnished](ctx, a, limit, protocol.DoFurnish, want)
	return err == nil && answer.Done
}
