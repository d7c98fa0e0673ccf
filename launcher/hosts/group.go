package hosts

import (
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/protocol"
)

// renewEvery is the interval at which this process renews the lease of each
// agent.
const renewEvery = 2 * time.Second

// Start describes the start of one agent and holds its connection afterwards.
type Start struct {
	Agent *AgentHost
	Spec  protocol.Spec
	// Again says that an earlier agent of the job may have run on the host.
	// Its remaining processes are then killed before the start.
	Again bool

	Conn *protocol.Conn // connection to the started agent; nil if the agent was not started
	Addr string         // address on which agents of other hosts can reach the agent; "" until the agent has reported it
}

// Named prefixes an error with the host's name.
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

// Group is a list of agents that this process has started. An agent ends its
// job when its lease expires, so Group renews the leases until another process
// takes over the job. The caller must call Close.
type Group []*Start

// Start starts all agents, at most FanOut at once, and displays which agents
// are still starting. The error joins the errors of all hosts whose agent did
// not start.
func (g Group) Start(ctx context.Context, printer *console.Printer) error {
	tally := printer.NewHostProgress("starting agents", len(g))
	return Each(ctx, g, func(_ int, s *Start) error {
		tally.Begin(s.Agent.Name())
		defer tally.End(s.Agent.Name())
		return s.start(ctx)
	})
}

// attach makes this process the agent's driver (the process that controls the
// job). The agent replies with its state, which attach returns.
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

// renew sends lease renewals to an agent until this process or the agent
// closes the connection.
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

// End asks all agents to end. It waits until no process of the job is left on
// their hosts, for at most the duration limit. An agent that cannot be reached
// ends when its lease expires.
func (g Group) End(v protocol.Verdict, limit time.Duration) error {
	for _, s := range g {
		if s.Conn != nil {
			s.Conn.Send(protocol.Message{End: &protocol.End{Verdict: v}}) // error ignored: without renewals, the lease expires and ends the agent
		}
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("not ended within %v", limit))
	defer cancel()
	return Each(context.Background(), g, func(_ int, s *Start) error { // the context is not ctx: on a timeout of ctx, Each would return only its cause, without host names
		if s.Conn == nil && !s.Again {
			return nil
		}
		return s.Agent.Reap(ctx)
	})
}

// Close closes the connections to all agents, which also stops the lease
// renewals.
func (g Group) Close() {
	for _, s := range g {
		if s.Conn != nil {
			s.Conn.Close()
		}
	}
}
