package transition

import (
	"context"
	"fmt"
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

	step    uint64              // the first under the new map; set by Run, as are those below
	d       *layout.Declaration // with the new map
	before  *aggregate.Shards
	next    *aggregate.Shards
	leaving [][]layout.Transfer // by holder: what it gets from here
	ready   chan struct{}       // closed once rows may come
	arrived chan struct{}       // closed once all have come

	mu     sync.Mutex
	coming [][]layout.Transfer // by holder: what it is to bring; nil once it has begun to
	left   int                 // holders that are to bring something still
}

// NewRepartition makes a Repartition to the map of an epoch. host is that of the
// shards that take the place of the present ones.
func NewRepartition(training context.Context, c Config, host aggregate.Host, epoch uint32) *Repartition {
	return &Repartition{training: training, config: c, host: host, epoch: epoch, ready: make(chan struct{}), arrived: make(chan struct{})}
}

// Run moves everything that comes here or leaves, and returns the shards of the
// new map d, which holds from a step on.
func (m *Repartition) Run(ctx context.Context, now *aggregate.Shards, d *layout.Declaration, step uint64) (*aggregate.Shards, error) {
	m.before, m.d, m.step = now, d, step
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
	m.leaving, m.coming = make([][]layout.Transfer, len(m.d.Holders)), make([][]layout.Transfer, len(m.d.Holders))
	for _, t := range layout.Transfers(now.Pieces, m.d.Pieces) {
		from, to := t.Old.Holder, t.New.Holder
		if from == index {
			m.leaving[to] = append(m.leaving[to], t)
		}
		if to == index && from != index {
			if m.coming[from] == nil {
				m.left++
			}
			m.coming[from] = append(m.coming[from], t)
		}
	}
	if m.left == 0 {
		close(m.arrived)
	}
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
