package transition

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/layout"
	"golang.org/x/sync/errgroup"
)

// Wanted is what every worker tells every holder, between two steps, to let
// variables move: JSON.
type Wanted struct {
	Epoch  uint32         `json:"epoch"` // of the new map
	Step   uint64         `json:"step"`  // the first under it
	Pieces []layout.Piece `json:"pieces"`
}

// Repartition brings a holder from one map of holders to the next. Rows go
// straight from the old holder to the new one, over a connection for the two
// of them, which the old one opens.
type Repartition struct {
	training context.Context // ends with the training; the cause says why
	config   Config
	host     aggregate.Host // of the shards that take the others' place
	epoch    uint32         // of the new map

	mu     sync.Mutex
	asked  []bool              // by rank
	count  int                 // of asked
	first  int                 // the rank that asked first
	step   uint64              // the first under the new map
	d      *layout.Declaration // the new map; nil: nobody has asked
	coming [][]layout.Transfer // by holder: what it is to bring; nil once it has begun to
	left   int                 // holders that are to bring something still

	before  *aggregate.Shards
	next    *aggregate.Shards
	leaving [][]layout.Transfer // by holder: what it gets from here
	ready   chan struct{}       // closed once rows may come
	arrived chan struct{}       // closed once all have come
}

// NewRepartition makes a Repartition that no worker has asked for yet. host is
// that of the shards that take the place of the present ones.
func NewRepartition(training context.Context, c Config, host aggregate.Host, epoch uint32, workers int) *Repartition {
	return &Repartition{training: training, config: c, host: host, epoch: epoch, asked: make([]bool, workers),
		ready: make(chan struct{}), arrived: make(chan struct{})}
}

// Epoch is the number of the new map.
func (m *Repartition) Epoch() uint32 { return m.epoch }

// Step is the first step under the new map.
func (m *Repartition) Step() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.step
}

// Declaration is that of the new map, once a worker has asked for it.
func (m *Repartition) Declaration() *layout.Declaration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.d
}

// Want notes what a worker wants, and refuses what others do not want. now is
// the present map.
func (m *Repartition) Want(rank int, w *Wanted, now *layout.Declaration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case w.Epoch != m.epoch || m.asked[rank]:
		return fmt.Errorf("wants variables to move for epoch %d, this is epoch %d", w.Epoch, m.epoch-1)
	case m.d == nil:
		d, err := now.Placed(w.Pieces)
		if err != nil {
			return err
		}
		m.d, m.step, m.first = d, w.Step, rank
	case w.Step != m.step || !slices.Equal(w.Pieces, m.d.Pieces):
		return fmt.Errorf("wants other owners before step %d than worker:%d before step %d", w.Step, m.first, m.step)
	}
	return nil
}

// Count counts a worker whose wish was accepted, and returns how many there are.
func (m *Repartition) Count(rank int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked[rank] = true
	m.count++
	return m.count
}

// Asked reports whether a worker was counted.
func (m *Repartition) Asked(rank int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked[rank]
}

// Refuses says why no worker may do something else meanwhile; nil: nobody has
// asked yet. A nil Repartition refuses nothing.
func (m *Repartition) Refuses(what string) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count == 0 {
		return nil
	}
	return fmt.Errorf("%s, but worker:%d wants variables to move before step %d", what, m.first, m.step)
}

// Run moves everything that comes here or leaves, and returns the shards of the
// new map.
func (m *Repartition) Run(ctx context.Context, now *aggregate.Shards) (*aggregate.Shards, error) {
	m.before = now
	if err := m.prepare(); err != nil {
		return nil, err
	}
	return m.next, m.move(ctx)
}

// prepare makes room for what will be here.
func (m *Repartition) prepare() error {
	self, now := m.config.self(), m.before.Declaration()
	if r := m.config.Room(now, m.d); r.Need > r.Free {
		return &r
	}
	var err error
	if m.next, err = m.before.Succeed(m.d, m.step, m.host); err != nil {
		return fmt.Errorf("%s: make room for what moves: %w", self, err)
	}
	index := m.d.HolderIndex(self)
	leaving, coming, left := make([][]layout.Transfer, len(m.d.Holders)), make([][]layout.Transfer, len(m.d.Holders)), 0
	for _, t := range layout.Transfers(now.Pieces, m.d.Pieces) {
		from, to := t.Old.Holder, t.New.Holder
		if from == index {
			leaving[to] = append(leaving[to], t)
		}
		if to == index && from != index {
			coming[from] = append(coming[from], t)
		}
	}
	for _, list := range coming {
		if len(list) > 0 {
			left++
		}
	}
	if left == 0 {
		close(m.arrived)
	}
	m.leaving, m.coming, m.left = leaving, coming, left
	close(m.ready)
	return nil
}

// move carries rows from here and waits for those that come.
func (m *Repartition) move(ctx context.Context) error {
	self := m.d.HolderIndex(m.config.self())
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

// from and to are the shards that a transfer leaves and comes to, if they are
// here.
func (m *Repartition) from(t layout.Transfer) *aggregate.Shard { return m.before.At(t.Old) }

func (m *Repartition) to(t layout.Transfer) *aggregate.Shard { return m.next.At(t.New) }

// keep takes rows that stay here to the pieces that they are part of now.
func (m *Repartition) keep(list []layout.Transfer) error {
	for _, t := range list {
		if err := m.to(t).Adopt(m.from(t), int64(t.Lo), int64(t.Hi)); err != nil {
			return fmt.Errorf("%s: %w", m.config.self(), err)
		}
	}
	return nil
}

// claim returns what a holder is to bring, once.
func (m *Repartition) claim(holder int) []layout.Transfer {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.coming[holder]
	m.coming[holder] = nil
	return list
}

// brought counts a holder that has brought everything.
func (m *Repartition) brought() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left--; m.left == 0 {
		close(m.arrived)
	}
}
