package collective

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
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
	Listener *peers.Listener // where workers of higher ranks come; nil with one worker
	Rank     int
	Addrs    []string // of all workers, by rank
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
	calling sync.Mutex  // held by a collective
	opened  bool        // all workers are connected; guarded by calling
	calls   int         // collectives that were begun; guarded by calling
	late    *time.Timer // breaks the group if a worker does not call its first collective; guarded by calling
	scratch []byte      // of sums, kept between calls; guarded by calling
	failed  chan struct{}
	running sync.WaitGroup // readers, and whoever ends a connection

	mu        sync.Mutex
	links     []*link       // by rank; nil: this worker, or one that is not connected yet
	missing   int           // workers that are not connected yet
	connected chan struct{} // closed when missing is zero
	closed    bool          // no peer can connect any more
	err       error         // why no collective is possible any more
	begun     uint64        // number of the last exchange that began here
	current   *exchange     // one exchange of the collective that runs; nil: no exchange runs
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

// Abort ends a collective that runs and tells all workers why no other will
// succeed. It does not wait until they have heard it; Close does.
func (g *Group) Abort(why error) { g.fail(why) }

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
