package logstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
)

// Print writes the logs of all hosts to out until the logs end. If the logs
// are not followed, it merges the hosts' logs by time.
//
// lease is the time for which a host's tasks keep running without contact to
// plx. Once a host was reached, it may be unreachable for at most lease and 10
// s more.
//
// If the logs are followed, Print calls the function state for each host that
// has sent all its logs; state may be nil. Once state returns a verdict from
// one host, Print gives up other hosts that have been silent for 10 s. Once
// the agent that drives the job reports the job's end, Print also gives up
// hosts that send keepalives but no logs.
func Print(ctx context.Context, agents []*hosts.AgentHost, req logs.Request, out *Output, lease time.Duration, state asker) error {
	var errs []error
	if req.Follow {
		errs = followAll(ctx, agents, req, out, lease+patience, state)
	} else {
		errs = merge(ctx, agents, req, out, lease+patience)
	}
	for i, err := range errs {
		if errors.Is(err, errOutput) {
			errs[i] = nil // drop the error: Output.Close returns it
		} else if err != nil {
			errs[i] = agents[i].Named(fmt.Errorf("logs: %w", err))
		}
	}
	return errors.Join(errs...)
}

// asker is a function that asks the agent on a host for the state of the job
// on that host.
type asker func(context.Context, *hosts.AgentHost) (protocol.State, error)

// followAll writes the chunks of all hosts as they arrive, and returns the
// error of each host. maxAway is how long a host may be unreachable.
func followAll(ctx context.Context, agents []*hosts.AgentHost, req logs.Request, out *Output, maxAway time.Duration, state asker) []error {
	ended := make(chan bool, len(agents)) // gets one value per host that has a verdict: true if the whole job has ended
	streams := make([]*stream, len(agents))
	for i, a := range agents {
		ctx, cancel := context.WithCancelCause(ctx)
		s := &stream{agent: a, cancel: cancel, done: make(chan struct{})}
		streams[i] = s
		go func() {
			defer close(s.done)
			defer cancel(nil)
			if s.err = follow(ctx, a, req, nil, out, &s.liveness, maxAway); s.err != nil || state == nil {
				return
			}
			if now, err := state(ctx, a); err == nil && now.Verdict != nil {
				ended <- now.JobPhase == protocol.Over
			}
		}()
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	errs := make([]error, len(agents))
	var verdict time.Time // when a host first reported a verdict, or when the job's end became known; zero if neither
	over := false         // true once the whole job has ended, so that no task writes logs any more
	for i, s := range streams {
		for waiting := true; waiting; {
			select {
			case <-s.done:
				waiting = false
			case sure := <-ended:
				if verdict.IsZero() || sure {
					verdict = time.Now()
				}
				over = over || sure
			case <-tick.C:
				quiet := s.liveness.silence()
				if over { // keepalives do not count now: a host that was rebooted may send them although its agent no longer exists
					quiet = s.liveness.idle()
				}
				if !verdict.IsZero() && min(time.Since(verdict), quiet) > patience {
					s.stop(errLastLines)
				}
			}
		}
		errs[i] = s.err
	}
	return errs
}

// errLastLines is the error for a host whose remaining logs plx gives up after
// the job's end.
var errLastLines = errors.New("the last lines may be missing")

// merge writes the chunks of all hosts in the order of their times, and
// returns the error of each host.
func merge(ctx context.Context, agents []*hosts.AgentHost, req logs.Request, out *Output, patience time.Duration) []error {
	var next []func() (logs.Chunk, error)
	for _, a := range agents {
		f := &feed{agent: a, req: req, cursor: &out.cursor, liveness: &liveness{}, patience: patience}
		defer f.close()
		f.open(ctx) // connect to all hosts at once, because logs.Merge reads them one after the other
		next = append(next, func() (logs.Chunk, error) { return f.next(ctx) })
	}
	return logs.Merge(next, func(i int, c logs.Chunk) error { return out.take(agents[i].Host, c) })
}

// Streams reads the logs of all hosts of the job that this process launched.
type Streams struct {
	mu  sync.Mutex
	all []*stream // newest stream of each host; guarded by mu
}

// stream reads the logs of one host from one agent. After a restart of the
// agent, the host has another stream.
type stream struct {
	agent    *hosts.AgentHost
	before   *stream  // stream of the agent that ran on this host before; nil for the first agent
	liveness liveness // when the host last sent a byte
	cancel   context.CancelCauseFunc
	done     chan struct{} // closed when run has returned
	err      error         // why the logs are incomplete, or nil; valid once done is closed
}

// Follow starts a goroutine that writes a host's logs to out. The goroutine
// ends when the host has sent all its logs. It also ends if the host is
// unreachable for longer than lease plus 10 s. If the agent on the host is
// restarted, the caller calls Follow again, and the new stream continues where
// the old one ends. early has log bytes that the agent sent before, within its
// other messages; it may be nil.
func (g *Streams) Follow(a *hosts.AgentHost, early *EarlyLogs, out *Output, lease time.Duration) {
	ctx, cancel := context.WithCancelCause(context.Background())
	s := g.add(a, cancel)
	s.liveness.note()
	go s.run(ctx, early, out, lease+patience)
}

func (s *stream) run(ctx context.Context, early *EarlyLogs, out *Output, patience time.Duration) {
	defer close(s.done)
	defer s.cancel(nil)
	if s.before != nil {
		<-s.before.done // wait for the previous stream: it ends by itself, or is cancelled together with this one
	}
	s.err = follow(ctx, s.agent, logs.Request{TailLines: -1, Follow: true}, early, out, &s.liveness, patience)
}

// add creates a stream for agent a. If the host has a stream already, the new
// one replaces it in g.all.
func (g *Streams) add(a *hosts.AgentHost, cancel context.CancelCauseFunc) *stream {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.all, func(old *stream) bool { return old.agent == a })
	if i < 0 {
		i, g.all = len(g.all), append(g.all, nil)
	}
	g.all[i] = &stream{agent: a, before: g.all[i], cancel: cancel, done: make(chan struct{})}
	return g.all[i]
}

// stop cancels the stream and the streams of all earlier agents on the host.
func (s *stream) stop(why error) {
	for ; s != nil; s = s.before {
		s.cancel(why)
	}
}

// hostError reports why the logs of a host are incomplete.
type hostError struct {
	Agent *hosts.AgentHost
	Err   error
}

// Incomplete returns the names of the hosts whose logs have not arrived
// completely.
func (g *Streams) Incomplete() (names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.all {
		select {
		case <-s.done:
		default:
			names = append(names, s.agent.Name())
		}
	}
	return names
}

// Wait is called after the job has ended. It returns when the logs of every
// host have arrived or Wait has given them up. Wait gives up a host that sends
// nothing for 10 s after the job's end. lost has the agents that the driver has
// lost, or whose end it could not confirm. Wait gives up their hosts at once if
// they have sent nothing for 10 s. If the user stops the job again, a message on
// stops makes Wait give up all hosts.
func (g *Streams) Wait(lost map[*hosts.AgentHost]bool, stops <-chan jobstate.StopAsked) (failed []hostError) {
	verdict := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for _, s := range g.all {
		for waiting := true; waiting; {
			select {
			case <-s.done:
				waiting = false
			case <-stops:
				for _, s := range g.all {
					s.stop(errors.New("given up by the user: the last lines may be missing"))
				}
			case <-tick.C:
				if s.liveness.silence() > patience && (lost[s.agent] || time.Since(verdict) > patience) {
					s.stop(errLastLines)
				}
			}
		}
		if s.err != nil && !errors.Is(s.err, errOutput) { // skip errOutput: Output.Close returns that error
			failed = append(failed, hostError{s.agent, s.err})
		}
	}
	return failed
}
