package hosts

import (
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/protocol"
)

// renewEvery is the time between two renewals of a lease.
const renewEvery = 2 * time.Second

// Start is an agent to start.
type Start struct {
	Agent *AgentHost
	Spec  protocol.Spec
	// Again tells that the host may have had an agent of the job before: what that
	// one left is reaped first.
	Again bool

	Conn *protocol.Conn // connection to the agent; nil: the agent was not started
	Addr string         // where agents of other hosts dial the agent; empty: it has not reported
}

// Named puts the host's name before an error.
func (s *Start) Named(err error) error { return s.Agent.Named(err) }

func (s *Start) start(ctx context.Context) error {
	if s.Again {
		if err := s.Agent.Reap(ctx); err != nil {
			return err
		}
	}
	conn, err := s.Agent.Start(ctx, s.Spec)
	if err != nil {
		return err
	}
	s.Conn = conn
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	state, err := attach(conn)
	if err != nil {
		return err
	}
	s.Addr = state.Addr
	go renew(conn)
	return nil
}

// Group is agents that this process has started and whose leases it renews, until
// somebody else drives the job. Close must be called.
type Group []*Start

// Start starts all agents, up to FanOut at once, and shows which it waits for. Its error joins
// those of all hosts; the other agents have started.
func (g Group) Start(ctx context.Context, printer *console.Printer) error {
	tally := printer.NewTally("starting agents", len(g))
	return Each(ctx, g, func(_ int, s *Start) error {
		tally.Begin(s.Agent.Name())
		defer tally.End(s.Agent.Name())
		return s.start(ctx)
	})
}

// attach makes this process the driver of the agent, and returns the agent's state.
func attach(conn *protocol.Conn) (protocol.State, error) {
	if err := conn.Send(protocol.Message{Attach: &protocol.Attach{Driver: true}}); err != nil {
		return protocol.State{}, err
	}
	for {
		m, err := conn.Receive()
		if err != nil {
			return protocol.State{}, err
		}
		if m.State != nil {
			return *m.State, nil
		}
	}
}

// renew renews a lease until either side closes the connection.
func renew(conn *protocol.Conn) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for err := error(nil); err == nil; {
			_, err = conn.Receive()
		}
	}()
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		if conn.Send(protocol.Message{Renew: &protocol.Renew{}}) != nil {
			return
		}
		select {
		case <-gone:
			return
		case <-tick.C:
		}
	}
}

// End ends the agents, unless somebody else drives the job and has ended them. It waits
// until nothing of the job is left on their hosts, at most for limit. If it fails, their
// leases end them.
func (g Group) End(v protocol.Verdict, limit time.Duration) error {
	for _, s := range g {
		if s.Conn != nil {
			s.Conn.Send(protocol.Message{End: &protocol.End{Verdict: v}}) // if it fails the lease ends the agent
		}
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("not ended within %v", limit))
	defer cancel()
	return Each(context.Background(), g, func(_ int, s *Start) error { // an error of ctx gets its host's name
		if s.Conn == nil && !s.Again {
			return nil
		}
		return s.Agent.Reap(ctx)
	})
}

// Close closes the connections, and so ends the renewals.
func (g Group) Close() {
	for _, s := range g {
		if s.Conn != nil {
			s.Conn.Close()
		}
	}
}
