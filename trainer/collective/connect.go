package collective

import (
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// open connects this worker to all others, before its first exchange. The
// caller holds g.calling.
func (g *Group) open(ctx context.Context) error {
	if g.opened {
		return nil
	}
	if err := g.check(); err != nil {
		return err
	}
	g.opened = true
	if len(g.config.Addrs) == 1 {
		return nil
	}
	late := fmt.Errorf("not there within %v", g.config.Start)
	ctx, cancel := context.WithTimeoutCause(ctx, g.config.Start, late)
	defer cancel()
	g.late = time.AfterFunc(g.config.Start+hangUp, func() { g.absent(late) }) // those that wait for an absent worker name it before
	g.config.Listener.Handle(purpose, g.accept)
	for rank := range g.config.Rank {
		g.running.Go(func() { g.dial(ctx, rank) })
	}
	select {
	case <-g.connected:
		return nil
	case <-g.failed:
	case <-ctx.Done():
		g.unconnected(context.Cause(ctx))
	}
	<-g.failed
	return g.reason()
}

func (g *Group) check() error {
	c := g.config
	switch {
	case c.Rank < 0 || c.Rank >= len(c.Addrs):
		return fmt.Errorf("rank %d in a world of %d", c.Rank, len(c.Addrs))
	case len(c.Addrs) > 1 && c.Listener == nil:
		return fmt.Errorf("no listener in a world of %d", len(c.Addrs))
	case len(c.Addrs) > 1 && (c.Peers.Self != task(c.Rank) || c.Peers.Workers != len(c.Addrs)):
		return fmt.Errorf("%s of %d workers has rank %d in a world of %d", c.Peers.Self, c.Peers.Workers, c.Rank, len(c.Addrs))
	}
	return wire.CheckHost()
}

// unconnected breaks the group because a worker of a higher rank has not
// dialled. If there is none, dial breaks the group, and knows more.
func (g *Group) unconnected(why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for rank := g.config.Rank + 1; rank < len(g.links); rank++ {
		if g.links[rank] == nil {
			g.broken(&peers.PeerError{Task: task(rank), Addr: g.config.Addrs[rank], Err: why})
			return
		}
	}
}

// absent breaks the group because a worker has not called its first
// collective, although its process runs.
func (g *Group) absent(late error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.links {
		if l != nil && l.heard == 0 {
			g.broken(l.Blame(fmt.Errorf("%w: it has not called its first collective", late)))
			return
		}
	}
}

// dial connects this worker to one of a lower rank.
func (g *Group) dial(ctx context.Context, rank int) {
	addr := g.config.Addrs[rank]
	conn, err := peers.Dial(ctx, g.config.Peers, task(rank), addr, purpose)
	if err != nil {
		g.fail(err) // of no matter where ctx has ended because the group has failed
		return
	}
	g.join(peers.Peer{Task: task(rank), Addr: addr, Conn: conn})
}

// accept takes a connection of a worker of a higher rank.
func (g *Group) accept(p peers.Peer) {
	if p.Task.Role != cluster.Worker || p.Task.Index <= g.config.Rank || p.Task.Index >= len(g.config.Addrs) {
		p.Conn.Close() // that worker does not dial this one
		return
	}
	g.join(p)
}

// join makes a connection the link to a worker. If the group is broken, the
// worker hears why.
func (g *Group) join(p peers.Peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	rank := p.Task.Index
	if g.links[rank] != nil || g.closed {
		p.Conn.Close() // a second one, or one that comes too late
		return
	}
	silence := 2 * max(g.config.Start, g.config.Silence) // a worker that has not called its first collective sends no heartbeats
	l := &link{Session: peers.NewSession(p, g.config.Peers.Generation, silence), group: g, rank: rank}
	g.links[rank] = l
	g.running.Go(l.read)
	if err := g.err; err != nil {
		g.running.Go(func() { l.Tell(err, hangUp) })
	}
	if g.missing--; g.missing == 0 {
		close(g.connected)
	}
}
