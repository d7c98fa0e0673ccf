package hosts

import (
	"context"
	"time"

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
}

// Group is agents that this process has started and whose leases it renews, until
// somebody else drives the job. Close must be called.
type Group struct {
	Starts []Start
	Conns  []*protocol.Conn // as Starts; nil: it did not start
	Addrs  []string         // as Starts: where other agents dial the agent
}

// NewGroup returns the Group of agents that Start starts.
func NewGroup(starts []Start) *Group {
	return &Group{Starts: starts, Conns: make([]*protocol.Conn, len(starts)), Addrs: make([]string, len(starts))}
}

// Start starts all agents, up to FanOut at once. Its error joins those of all hosts; the
// other agents have started.
func (g *Group) Start(ctx context.Context) error {
	return Each(ctx, g.agents(), func(i int, a *AgentHost) error { return g.start(ctx, i, a) })
}

func (g *Group) agents() (agents []*AgentHost) {
	for _, s := range g.Starts {
		agents = append(agents, s.Agent)
	}
	return agents
}

func (g *Group) start(ctx context.Context, i int, a *AgentHost) error {
	if g.Starts[i].Again {
		if err := a.Reap(ctx); err != nil {
			return err
		}
	}
	conn, err := a.Start(ctx, g.Starts[i].Spec)
	if err != nil {
		return err
	}
	g.Conns[i] = conn
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	state, err := attach(conn)
	if err != nil {
		return err
	}
	g.Addrs[i] = state.Addr
	go renew(conn)
	return nil
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
	for seq := int64(1); ; seq++ {
		if conn.Send(protocol.Message{Renew: &protocol.Renew{Seq: seq}}) != nil {
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
func (g *Group) End(v protocol.Verdict, limit time.Duration) error {
	end := protocol.Message{End: &protocol.End{Verdict: v}}
	for _, c := range g.Conns {
		if c != nil {
			c.Send(end) // if it fails the lease ends the agent
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return Each(context.Background(), g.agents(), func(i int, a *AgentHost) error { // an error of ctx gets its host's name
		if g.Conns[i] == nil && !g.Starts[i].Again {
			return nil
		}
		return a.Reap(ctx)
	})
}

// Close closes the connections, and so ends the renewals.
func (g *Group) Close() {
	for _, c := range g.Conns {
		if c != nil {
			c.Close()
		}
	}
}
