package mesh

import (
	"errors"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
)

const (
	purpose        = "mesh"
	defaultStart   = 5 * time.Minute
	defaultSilence = time.Minute
	again          = 100 * time.Millisecond
	hangUp         = time.Second // for telling a peer why a mesh broke
	goodbye        = 2 * time.Second
)

var (
	errClosed     = errors.New("the mesh is closed")
	errConcurrent = errors.New("two collectives at once: call them one after the other")
)

// Config says who a worker is and where the others are.
type Config struct {
	Peers peers.Config
	Door  *peers.Door // where workers of higher ranks come; nil in a world of one
	Rank  int
	Addrs []string // of all workers, by rank
	// Start is how long the first collective waits for the other workers to
	// come to theirs. 0: five minutes.
	Start time.Duration
	// Silence is how long a peer may send nothing, not even a heartbeat,
	// before it is given up. 0: one minute. The same on all workers.
	Silence time.Duration
}

// Mesh is a worker's end of the collectives of a job. One goroutine at a time
// may call a collective.
type Mesh struct {
	config  Config
	calling sync.Mutex // held by a collective
	opened  bool       // guarded by calling
	scratch []byte     // likewise: of the reducer, kept between calls
	arrived chan struct{}
	failed  chan struct{} // closed when err is set
	running sync.WaitGroup

	mu       sync.Mutex
	links    []*link // by rank; nil: this worker, or not there yet
	closed   bool    // nobody is to join any more
	err      error   // why no collective is possible any more
	sequence uint64  // of the last collective that was begun here
	current  *round  // nil between two collectives
}

// New prepares a mesh. It opens no connection yet: the first collective does,
// and reports what is wrong with c.
func New(c Config) *Mesh {
	if c.Start <= 0 {
		c.Start = defaultStart
	}
	if c.Silence <= 0 {
		c.Silence = defaultSilence
	}
	return &Mesh{
		config:  c,
		links:   make([]*link, len(c.Addrs)),
		arrived: make(chan struct{}, 1),
		failed:  make(chan struct{}),
	}
}

func (m *Mesh) world() int { return len(m.config.Addrs) }

// task names a worker in messages.
func task(rank int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: rank} }

// Close ends the mesh, in bounded time: a collective that runs is broken off,
// on all workers. Else the others are told that this worker has left; what it
// sent arrives before, unless the peer takes nothing for two seconds.
func (m *Mesh) Close() error {
	m.mu.Lock()
	first := !m.closed
	m.closed = true
	if m.err == nil && m.current == nil {
		m.leave()
	}
	m.broken(errClosed)
	m.mu.Unlock()
	if first && m.config.Door != nil {
		m.config.Door.Handle(purpose, nil)
	}
	m.running.Wait()
	return nil
}

// Abort breaks off a collective that runs, and tells all workers why none will be
// any more. It does not wait until they have heard it; Close does.
func (m *Mesh) Abort(why error) { m.fail(why) }

// leave says goodbye to every peer. It needs m.mu.
func (m *Mesh) leave() {
	m.err = errClosed
	close(m.failed)
	for _, l := range m.links {
		if l != nil {
			m.running.Go(l.goodbye)
		}
	}
}

// fail breaks the mesh, once, and tells the others why. It returns why the
// mesh is broken.
func (m *Mesh) fail(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.broken(err)
}

// broken is fail for callers that hold m.mu.
func (m *Mesh) broken(err error) error {
	if m.err != nil {
		return m.err
	}
	m.err = err
	close(m.failed)
	for _, l := range m.links {
		if l != nil {
			m.running.Go(func() { l.tell(err) })
		}
	}
	return err
}
