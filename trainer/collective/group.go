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
	reportTimeout  = time.Second     // maximum time for telling a peer why the group broke
	goodbyeTimeout = 2 * time.Second // maximum time that Close waits for a peer's reply to the goodbye
)

var (
	errClosed     = errors.New("the collectives are closed")
	errConcurrent = errors.New("two collectives at once: call them one after the other")
)

// Config describes this worker and the addresses of all workers.
type Config struct {
	Peers    peers.Config
	Listener *peers.Listener // accepts the connections of workers with higher ranks; may be nil if the job has one worker
	Rank     int
	Addrs    []string // address (host:port) of each worker, indexed by rank
	// Start is the maximum time that the first collective waits until all
	// other workers have called it too. 0 means five minutes.
	Start time.Duration
	// Silence is the time after which a peer that sends nothing, not even a
	// heartbeat, counts as lost. It must be the same on all workers. 0 means
	// one minute.
	Silence time.Duration
}

// Group represents this worker in the collectives of a job. Only one goroutine
// at a time may call a collective.
type Group struct {
	config  Config
	calling sync.Mutex     // held while a collective runs
	opened  bool           // true once this worker has begun to connect to all other workers; guarded by calling
	calls   int            // number of collectives that were called so far; guarded by calling
	late    *time.Timer    // timer that breaks the group if another worker does not call its first collective in time; guarded by calling
	scratch []byte         // memory for the contributions to a sum, reused by later calls; guarded by calling
	failed  chan struct{}  // closed when err is set: the group is broken
	running sync.WaitGroup // counts the goroutines that read or close a connection

	mu        sync.Mutex
	links     []*link       // connection to each worker, indexed by rank; nil for this worker and for workers that are not connected yet
	missing   int           // number of workers that are not connected yet
	connected chan struct{} // closed when missing is 0: all workers are connected
	closed    bool          // true once Close was called; after that no peer can connect
	err       error         // why the group is broken; nil if it is not broken
	begun     uint64        // number of the last exchange that this worker has begun; 0 before the first; writers hold calling as well as mu
	current   *exchange     // the running exchange; nil if none runs
}

// New returns a group that is not connected yet. The first collective opens
// the connections, and returns an error if c is wrong.
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

// task returns the name of the worker with the given rank, for messages:
// worker:N.
func task(rank int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: rank} }

// run executes one collective, which consists of one or more exchanges. Any
// error breaks the group, because the other workers would wait for this
// worker.
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

// room returns scratch memory of size bytes, whose alignment suits every type
// in Number. The next call of room reuses the memory. The caller holds
// g.calling.
func (g *Group) room(size int) []byte {
	if len(g.scratch) < size {
		g.scratch = aligned(size)
	}
	return g.scratch[:size]
}

// Close closes the group in bounded time. A running collective fails on all
// workers. If none runs, Close sends all pending data and then a goodbye to
// each other worker. It waits at most two seconds for a worker that does not
// read.
func (g *Group) Close() error {
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	if g.err == nil && g.current == nil {
		g.end(errClosed, func(l *link) { l.Goodbye(goodbyeTimeout) }) // an error of Goodbye means only that the peer did not reply
	}
	g.broken(errClosed)
	g.mu.Unlock()
	if first && g.config.Listener != nil {
		g.config.Listener.Handle(purpose, nil)
	}
	g.running.Wait()
	return nil
}

// reason returns why the group is broken; nil if it is not broken.
func (g *Group) reason() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// fail breaks the group with err, unless it is broken already, and reports err
// to the other workers. It returns the error that broke the group first.
func (g *Group) fail(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.broken(err)
}

// broken does what fail does. The caller holds g.mu.
func (g *Group) broken(err error) error {
	if g.err == nil {
		g.end(err, func(l *link) { l.CloseWithError(err, reportTimeout) })
	}
	return g.err
}

// end makes every later collective return err. For every connection it calls
// the function link on a separate goroutine. The caller holds g.mu.
func (g *Group) end(err error, link func(*link)) {
	g.err = err
	close(g.failed)
	for _, l := range g.links {
		if l != nil {
			g.running.Go(func() { link(l) })
		}
	}
}

// open connects this worker to all other workers before the first exchange.
// The caller holds g.calling.
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
	late := fmt.Errorf("not ready within %v", g.config.Start)
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), g.config.Start, late)
	// After open returns, the dials continue for reportTimeout. So a worker
	// that this worker is dialling still learns why the group broke.
	defer time.AfterFunc(reportTimeout, cancel)
	// This timer fires later than the timeout of ctx. If a worker never
	// connects, the timeout of ctx comes first, and its error names that
	// worker.
	g.late = time.AfterFunc(g.config.Start+reportTimeout, func() { g.absent(late) })
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
// connected to this worker. If only workers of lower ranks are missing, dial
// breaks the group with a more precise error.
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

// absent breaks the group because a worker has connected but has not called
// its first collective in time. late is the reason to report.
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

// dial connects this worker to a worker of a lower rank.
func (g *Group) dial(ctx context.Context, rank int) {
	addr := g.config.Addrs[rank]
	conn, err := peers.Dial(ctx, g.config.Peers, task(rank), addr, purpose)
	if err != nil {
		g.fail(err) // no effect if the group is already broken, which also ends the dial
		return
	}
	g.join(peers.Peer{Task: task(rank), Addr: addr, Conn: conn})
}

// accept handles a connection from a worker of a higher rank.
func (g *Group) accept(p peers.Peer) {
	if p.Task.Role != cluster.Worker || p.Task.Index <= g.config.Rank || p.Task.Index >= len(g.config.Addrs) {
		p.Conn.Close() // an error of Close does not matter: only workers of higher ranks may dial this worker
		return
	}
	g.join(p)
}

// join makes a connection the link to a worker. If the group is already
// broken, join tells that worker why.
func (g *Group) join(p peers.Peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	rank := p.Task.Index
	if g.links[rank] != nil || g.closed {
		p.Conn.Close() // an error of Close does not matter: this is a second connection of that worker, or Close was called
		return
	}
	// A connected worker sends no heartbeats before it calls its first
	// collective, so the time limit is longer until then.
	silence := 2 * max(g.config.Start, g.config.Silence)
	l := &link{Session: peers.NewSession(p, g.config.Peers.Generation, silence), group: g, rank: rank}
	g.links[rank] = l
	g.running.Go(l.read)
	if err := g.err; err != nil {
		g.running.Go(func() { l.CloseWithError(err, reportTimeout) })
	}
	if g.missing--; g.missing == 0 {
		close(g.connected)
	}
}
