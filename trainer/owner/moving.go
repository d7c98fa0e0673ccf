package owner

import (
	"context"
	"fmt"
	"sync"

	"github.com/plx-run/plx/trainer/peers"
	"golang.org/x/sync/errgroup"
)

// moving is a server on its way from one map of owners to the next. Rows go
// straight from the old owner to the new one, over a connection for the two
// of them, which the old one opens.
type moving struct {
	server *server
	epoch  uint32

	// Guarded by the server's mu until all workers have asked.
	asked []bool // by rank
	count int    // of asked
	first int    // the rank that asked first
	step  uint64 // the first under the new map
	d     *Declaration

	before  *engine
	next    *successor
	leaving [][]transfer  // by owner: what it gets from here
	ready   chan struct{} // closed once rows may come
	arrived chan struct{} // closed once all have come

	mu     sync.Mutex
	coming [][]transfer // by owner: what it is to bring; nil once it has begun to
	left   int          // owners that are to bring something still
}

func newMoving(s *server) *moving {
	return &moving{
		server: s, epoch: s.epoch + 1, asked: make([]bool, len(s.peers)),
		ready: make(chan struct{}), arrived: make(chan struct{}),
	}
}

// run moves everything that comes here or leaves, and ends the training where
// that fails.
func (m *moving) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	m.server.writers.Go(func() {
		select {
		case <-m.server.ended:
			cancel()
		case <-done:
		}
	})
	if err := m.relocate(ctx); err != nil {
		m.server.end(err)
		return
	}
	m.server.install(m)
}

// relocate returns when everything is where it belongs. The first worker of a
// host has nothing to move for the others; it only sees to it that none of
// them goes on without the move.
func (m *moving) relocate(ctx context.Context) error {
	m.server.mu.Lock()
	m.before = m.server.engine
	m.server.mu.Unlock()
	if m.before.relay != nil {
		return nil
	}
	if err := m.prepare(); err != nil {
		return err
	}
	return m.move(ctx)
}

// prepare makes room for what will be here.
func (m *moving) prepare() error {
	s := m.server
	if need, free := s.roomFor(m.before.d, m.d); need > free {
		return &RoomError{Owner: s.self, Need: need, Free: free}
	}
	var err error
	if m.next, err = m.before.succeed(m.d, m.step); err != nil {
		return fmt.Errorf("%s: make room for what moves: %w", s.self, err)
	}
	self := m.d.ownerIndex(s.self)
	m.leaving, m.coming = make([][]transfer, len(m.d.Owners)), make([][]transfer, len(m.d.Owners))
	for _, t := range transfers(m.before.d.Pieces, m.d.Pieces) {
		from, to := t.old.Owner, t.new.Owner
		if from == self {
			m.leaving[to] = append(m.leaving[to], t)
		}
		if to == self && from != self {
			m.coming[from] = append(m.coming[from], t)
		}
	}
	for _, list := range m.coming {
		if len(list) > 0 {
			m.left++
		}
	}
	if m.left == 0 {
		close(m.arrived)
	}
	close(m.ready)
	return nil
}

// move carries rows from here and waits for those that come.
func (m *moving) move(ctx context.Context) error {
	self := m.d.ownerIndex(m.server.self)
	group, ctx := errgroup.WithContext(ctx)
	for to, list := range m.leaving {
		switch {
		case len(list) == 0:
		case to == self:
			group.Go(func() error { return m.keep(list) })
		default:
			group.Go(func() error { return m.send(ctx, to, list) })
		}
	}
	group.Go(func() error {
		select {
		case <-m.arrived:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return group.Wait()
}

// from and to are the slots that a transfer leaves and comes to, where they
// are here.
func (m *moving) from(t transfer) movable {
	return m.before.slots[m.before.where[place{t.old.Variable, t.old.Offset}]].(movable)
}

func (m *moving) to(t transfer) movable {
	return m.next.slots[m.next.where[place{t.new.Variable, t.new.Offset}]].(movable)
}

// keep takes rows that stay here to the pieces that they are part of now.
func (m *moving) keep(list []transfer) error {
	for _, t := range list {
		from, to := m.from(t), m.to(t)
		to.adopt(from, int64(t.lo), int64(t.hi))
		if err := to.counts(from.count()); err != nil {
			return fmt.Errorf("%s: %w", m.server.self, err)
		}
	}
	return nil
}

// claim returns what an owner is to bring, once.
func (m *moving) claim(owner int) []transfer {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.coming[owner]
	m.coming[owner] = nil
	return list
}

// brought counts an owner that has brought everything.
func (m *moving) brought() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left--; m.left == 0 {
		close(m.arrived)
	}
}

// blame makes err that of an owner.
func (m *moving) blame(owner int, err error) error {
	task := m.d.Owners[owner]
	return &peers.PeerError{Task: task, Addr: m.server.cluster.Addr(task), Err: peers.Lost(err)}
}
