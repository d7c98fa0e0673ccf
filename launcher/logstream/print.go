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

// Print writes the hosts' logs to out until their end. Without Follow it merges them in
// the order of time. A host that was connected may be away for its lease, since its
// tasks live as long, and then for a moment more. With Follow, Print asks state, which may be nil, for the state of
// each host that has sent all of its logs. Once a host has a verdict, Print gives up hosts that are silent; once
// the agent that drives the job says that the job is over, also those that send no more logs.
func Print(ctx context.Context, agents []*hosts.AgentHost, req logs.Request, out *Output, lease time.Duration, state asker) error {
	var errs []error
	if req.Follow {
		errs = followAll(ctx, agents, req, out, lease+patience, state)
	} else {
		errs = merge(ctx, agents, req, out, lease+patience)
	}
	for i, err := range errs {
		if errors.Is(err, errOutput) {
			errs[i] = nil // Output.Close returns it
		} else if err != nil {
			errs[i] = agents[i].Named(fmt.Errorf("logs: %w", err))
		}
	}
	return errors.Join(errs...)
}

// asker asks a host for the state of its part of the job.
type asker func(context.Context, *hosts.AgentHost) (protocol.State, error)

// followAll writes chunks as they come, and returns the error of each host. away is how long a
// host may be away.
func followAll(ctx context.Context, agents []*hosts.AgentHost, req logs.Request, out *Output, away time.Duration, state asker) []error {
	ended := make(chan bool, len(agents)) // whether the job is over, of each host that has a verdict
	streams := make([]*stream, len(agents))
	for i, a := range agents {
		ctx, cancel := context.WithCancelCause(ctx)
		s := &stream{agent: a, cancel: cancel, done: make(chan struct{})}
		streams[i] = s
		go func() {
			defer close(s.done)
			defer cancel(nil)
			if s.err = follow(ctx, a, req, nil, out, &s.heard, away); s.err != nil || state == nil {
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
	var verdict time.Time // when the end of the job was known; zero: it is not
	over := false         // no host writes logs any more
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
				quiet := s.heard.silence()
				if over { // a restarted host may be there and not know that its agent is gone
					quiet = s.heard.idle()
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

// errLastLines is why a host is given up after the verdict.
var errLastLines = errors.New("the last lines may be missing")

// merge writes chunks in the order of time, and returns the error of each host.
func merge(ctx context.Context, agents []*hosts.AgentHost, req logs.Request, out *Output, patience time.Duration) []error {
	var next []func() (logs.Chunk, error)
	for _, a := range agents {
		f := &feed{agent: a, req: req, cursor: &out.cursor, heard: &liveness{}, patience: patience}
		defer f.close()
		f.open(ctx) // on all hosts at once: logs.Merge asks one after the other
		next = append(next, func() (logs.Chunk, error) { return f.next(ctx) })
	}
	return logs.Merge(next, func(i int, c logs.Chunk) error { return out.take(agents[i].Host, c) })
}

// Streams reads the logs of all hosts of a job that this process drives.
type Streams struct {
	mu  sync.Mutex
	all []*stream // the newest stream of each host
}

// stream reads the logs of one host.
type stream struct {
	agent  *hosts.AgentHost
	before *stream  // stream of the agent that this stream's agent replaced; nil: the first agent
	heard  liveness // when the host was last known to be there
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when run has returned
	err    error         // why the logs are not complete; nil: they are; valid once done is closed
}

// Follow starts to write a host's logs to out, until the host has sent all of them or
// was out of reach for longer than its lease and Patience. Call it again for an agent
// that replaces another one: it continues where the stream before ends. early, which may be
// nil, gets what the agent sends of its own.
func (g *Streams) Follow(a *hosts.AgentHost, early *Early, out *Output, lease time.Duration) {
	ctx, cancel := context.WithCancelCause(context.Background())
	s := g.add(a, cancel)
	s.heard.note()
	go s.run(ctx, early, out, lease+patience)
}

func (s *stream) run(ctx context.Context, early *Early, out *Output, patience time.Duration) {
	defer close(s.done)
	defer s.cancel(nil)
	if s.before != nil {
		<-s.before.done // it ends by itself, or is cancelled with this one
	}
	s.err = follow(ctx, s.agent, logs.Request{TailLines: -1, Follow: true}, early, out, &s.heard, patience)
}

// add adds a stream, in the place of the one of the same host.
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

// stop cancels the stream, and those before it.
func (s *stream) stop(why error) {
	for ; s != nil; s = s.before {
		s.cancel(why)
	}
}

// hostError is why the logs of a host are not complete.
type hostError struct {
	Agent *hosts.AgentHost
	Err   error
}

// Waiting returns the names of the hosts that have not sent all of their logs.
func (g *Streams) Waiting() (names []string) {
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

// Wait is called after the verdict. It waits until every host has sent all of its logs.
// It gives up a host that is silent, at once if it is among the lost ones, and all
// hosts after a message from stops.
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
				if s.heard.silence() > patience && (lost[s.agent] || time.Since(verdict) > patience) {
					s.stop(errLastLines)
				}
			}
		}
		if s.err != nil && !errors.Is(s.err, errOutput) { // Output.Close returns an errOutput
			failed = append(failed, hostError{s.agent, s.err})
		}
	}
	return failed
}
