package transition

import (
	"context"
	"fmt"
	"sync"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/layout"
	"golang.org/x/sync/errgroup"
)

// MoveRequest is the request, in JSON, with which variables move. Every worker sends
// it to every holder, between two steps.
type MoveRequest struct {
	Epoch  uint32         `json:"epoch"` // of the new map
	Step   uint64         `json:"step"`  // first step under the new map
	Pieces []layout.Piece `json:"pieces"`
}

// Repartition replaces the map of a holder by the next map. A holder sends rows
// directly to their new holder, over a connection that it opens for them.
type Repartition struct {
	training context.Context // ends with the training; its cause is the reason
	config   Config
	host     aggregate.Host // of the new shards
	epoch    uint32         // of the new map

	// Run sets the fields from step to leaving.
	step    uint64              // first step under the new map
	d       *layout.Declaration // with the new map
	before  *aggregate.Shards   // shards under the old map
	next    *aggregate.Shards   // shards under the new map
	leaving [][]layout.Transfer // by holder: rows to send to it
	ready   chan struct{}       // closed when rows may arrive
	arrived chan struct{}       // closed after all rows have arrived

	mu     sync.Mutex
	coming [][]layout.Transfer // by holder: rows that it will send; nil after it has begun
	left   int                 // number of holders that have not sent all their rows
}

// NewRepartition returns a Repartition to the map of an epoch. host is for the
// new shards. training is the context of the training.
func NewRepartition(training context.Context, c Config, host aggregate.Host, epoch uint32) *Repartition {
	return &Repartition{training: training, config: c, host: host, epoch: epoch, ready: make(chan struct{}), arrived: make(chan struct{})}
}

// Run sends the rows that leave this holder and waits for those that arrive. It
// returns the shards of the new map d. step is the first step under that map.
func (m *Repartition) Run(ctx context.Context, now *aggregate.Shards, d *layout.Declaration, step uint64) (*aggregate.Shards, error) {
	m.before, m.d, m.step = now, d, step
	if err := m.prepare(); err != nil {
		return nil, err
	}
	return m.next, m.move(ctx)
}

// prepare makes the new shards, and lists the rows to send and to expect.
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

// move sends the rows that leave, and waits for those that arrive.
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

// from and to return the old and the new shard of a transfer, which must be on
// this holder.
func (m *Repartition) from(t layout.Transfer) *aggregate.Shard { return m.before.At(t.Old) }

func (m *Repartition) to(t layout.Transfer) *aggregate.Shard { return m.next.At(t.New) }

// keep copies rows that stay on this holder to their new shards.
func (m *Repartition) keep(list []layout.Transfer) error {
	for _, t := range list {
		if err := m.to(t).Adopt(m.from(t), int64(t.Lo), int64(t.Hi)); err != nil {
			return fmt.Errorf("%s: %w", m.config.self(), err)
		}
	}
	return nil
}

// claim returns the rows that a holder will send. A second call for the holder
// returns nil.
func (m *Repartition) claim(holder int) []layout.Transfer {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.coming[holder]
	m.coming[holder] = nil
	return list
}

// brought counts a holder that has sent all its rows.
func (m *Repartition) brought() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left--; m.left == 0 {
		close(m.arrived)
	}
}
