package collective

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

const (
	purpose        = "collective"
	defaultStart   = 5 * time.Minute
	defaultSilence = time.Minute
	hangUp         = time.Second     // for telling a peer why a group broke
	goodbye        = 2 * time.Second // for a peer's answer to a goodbye
)

var (
	errClosed     = errors.New("the collectives are closed")
	errConcurrent = errors.New("two collectives at once: call them one after the other")
)

// Config says who a worker is and where the others are.
type Config struct {
	Peers    peers.Config
	Listener *peers.Listener // gets the connections of workers of higher ranks; nil with one worker
	Rank     int
	Addrs    []string // by rank: address of the worker, host:port
	// Start is how long the first collective waits for the other workers to
	// call theirs. Zero means five minutes.
	Start time.Duration
	// Silence is how long a peer may send nothing, not even a heartbeat,
	// before it counts as lost. It is the same on all workers. Zero means one
	// minute.
	Silence time.Duration
}

// Group is a worker's end of the collectives of a job. One goroutine at a time
// may call a collective.
type Group struct {
	config  Config
	calling sync.Mutex     // held by a collective
	opened  bool           // all workers are connected; guarded by calling
	calls   int            // number of collectives begun; guarded by calling
	late    *time.Timer    // breaks the group if a worker does not call its first collective; guarded by calling
	scratch []byte         // memory for sums, kept between calls; guarded by calling
	failed  chan struct{}  // closed when err is set
	running sync.WaitGroup // readers, and goroutines that end a connection

	mu        sync.Mutex
	links     []*link       // by rank; nil for this worker and for workers that are not connected yet
	missing   int           // number of workers that are not connected yet
	connected chan struct{} // closed when missing is zero
	closed    bool          // no peer can connect any more
	err       error         // why no collective is possible any more; nil means that collectives are possible
	begun     uint64        // number of the last exchange begun here; 0 means none; written with calling held too
	current   *exchange     // the exchange that runs; nil means none
}

// New prepares a group. It opens no connection: the first collective does, and
// reports what is wrong with c.
func New(c Config) *Group {
	if c.Start <= 0 {
		c.Start = defaultStart
	}
	if c.Silence <= 0 {
		c.Silence = defaultSilence
	}
	return &Group{
		config: c, links: make([]*link, len(c.Addrs)), missing: len(c.Addrs) - 1,
		connected: make(chan struct{}), failed: make(chan struct{}),
	}
}

// task names a worker in messages.
func task(rank int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: rank} }

// run carries out one collective, in one or more exchanges. Any error breaks
// the group, because the other workers wait.
func (g *Group) run(ctx context.Context, s signature, do func(*call) error) error {
	if !g.calling.TryLock() {
		return g.fail(errConcurrent)
	}
	defer g.calling.Unlock()
	g.calls++
	if err := g.reason(); err != nil {
		return fmt.Errorf("%s is not possible any more: %w", s, err)
	}
	if ctx.Err() != nil {
		return g.fail(s.ended(ctx))
	}
	stop := context.AfterFunc(ctx, func() { g.fail(s.ended(ctx)) })
	err := g.open(ctx)
	if err == nil {
		err = do(&call{signature: s, group: g, rank: g.config.Rank, world: len(g.config.Addrs)})
	}
	if g.late != nil {
		g.late.Stop()
	}
	if err == nil && !stop() {
		err = s.ended(ctx)
	}
	stop()
	if err != nil {
		return g.fail(err)
	}
	return nil
}

// room returns memory for sums, that may hold any Number. It is good until the
// next call of room. The caller holds g.calling.
func (g *Group) room(size int) []byte {
	if len(g.scratch) < size {
		g.scratch = aligned(size)
	}
	return g.scratch[:size]
}

// Close ends the group in bounded time. A collective that runs ends with an
// error, on all workers. Otherwise the other workers hear that this one has
// left, after everything that it sent, unless a worker reads nothing for two
// seconds.
func (g *Group) Close() error {
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	if g.err == nil && g.current == nil {
		g.end(errClosed, func(l *link) { l.Goodbye(goodbye) }) // what it did not answer does not matter
	}
	g.broken(errClosed)
	g.mu.Unlock()
	if first && g.config.Listener != nil {
		g.config.Listener.Handle(purpose, nil)
	}
	g.running.Wait()
	return nil
}

// reason is why the group is broken, nil: it is not.
func (g *Group) reason() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// fail breaks the group, once, and tells the other workers why. It returns why
// the group is broken.
func (g *Group) fail(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.broken(err)
}

// broken is fail for callers that hold g.mu.
func (g *Group) broken(err error) error {
	if g.err == nil {
		g.end(err, func(l *link) { l.Tell(err, hangUp) })
	}
	return g.err
}

// end makes every later call return err and ends all links. The caller holds
// g.mu.
func (g *Group) end(err error, link func(*link)) {
	g.err = err
	close(g.failed)
	for _, l := range g.links {
		if l != nil {
			g.running.Go(func() { link(l) })
		}
	}
}

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
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), g.config.Start, late)
	defer time.AfterFunc(hangUp, cancel)                                      // a worker that is being dialled hears why the group broke
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
		if l != nil && l.announced == 0 {
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
