package transition

import (
	"context"
	"fmt"
	"sync"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/layout"
	"golang.org/x/sync/errgroup"
)

// MoveRequest requests that variables move to other shard holders. Every
// worker sends it as JSON to every holder, between two steps.
type MoveRequest struct {
	Epoch  uint32         `json:"epoch"` // version of the new placement
	Step   uint64         `json:"step"`  // first step with the new placement
	Pieces []layout.Piece `json:"pieces"`
}

// Repartition changes which pieces one shard holder has. Holders send rows
// directly to each other, on connections that they open for this.
type Repartition struct {
	training context.Context // canceled when the training ends; its cause is the reason
	config   Config
	host     aggregate.Host // delivers the events of the new shards to the workers
	epoch    uint32         // version of the new placement

	// Run sets the fields from step to leaving, before it closes ready.
	step    uint64              // number of the first training step with the new placement (assignment of pieces to shard holders)
	d       *layout.Declaration // declaration with the new placement
	before  *aggregate.Shards   // shards of the old placement
	next    *aggregate.Shards   // shards of the new placement
	leaving [][]layout.Transfer // rows that this holder sends to each other holder, indexed by the receiving holder
	ready   chan struct{}       // closed when this holder can receive rows
	arrived chan struct{}       // closed after this holder has received all its rows

	mu     sync.Mutex
	coming [][]layout.Transfer // rows expected from each other holder, indexed by the sending holder; nil after that holder has connected
	left   int                 // number of holders that still have to send rows to this holder
}

// NewRepartition returns a Repartition that leads to the placement with the
// version number epoch. host delivers the events of the new shards to the
// workers. training is canceled when the training ends.
func NewRepartition(training context.Context, c Config, host aggregate.Host, epoch uint32) *Repartition {
	return &Repartition{training: training, config: c, host: host, epoch: epoch, ready: make(chan struct{}), arrived: make(chan struct{})}
}

// Run sends the rows that leave this holder, and waits until all rows for this
// holder have arrived. It returns the shards for the new declaration d, whose
// first step is step.
func (m *Repartition) Run(ctx context.Context, now *aggregate.Shards, d *layout.Declaration, step uint64) (*aggregate.Shards, error) {
	m.before, m.d, m.step = now, d, step
	if err := m.prepare(); err != nil {
		return nil, err
	}
	return m.next, m.move(ctx)
}

// prepare creates the new shards, and computes which rows this holder sends
// and which it receives.
func (m *Repartition) prepare() error {
	self, now := m.config.self(), m.before.Declaration()
	if r := m.config.Room(now, m.d); r.Need > r.Free {
		return &r
	}
	var err error
	if m.next, err = m.before.Succeed(m.d, m.step, m.host); err != nil {
		return fmt.Errorf("%s: allocate memory for variables that move here: %w", self, err)
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

// move sends rows to their new holders, and waits until this holder has
// received all rows that it gains.
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

// The methods from and to return the old and the new shard of a transfer. The
// shard must be on this holder.
func (m *Repartition) from(t layout.Transfer) *aggregate.Shard { return m.before.At(t.Old) }

func (m *Repartition) to(t layout.Transfer) *aggregate.Shard { return m.next.At(t.New) }

// keep copies the rows that stay on this holder from their old shards to their
// new shards.
func (m *Repartition) keep(list []layout.Transfer) error {
	for _, t := range list {
		if err := m.to(t).Adopt(m.from(t), int64(t.Lo), int64(t.Hi)); err != nil {
			return fmt.Errorf("%s: %w", m.config.self(), err)
		}
	}
	return nil
}

// claim returns the rows that this holder expects from another holder. The
// second call for the same holder returns nil.
func (m *Repartition) claim(holder int) []layout.Transfer {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.coming[holder]
	m.coming[holder] = nil
	return list
}

// brought records that a holder has sent all its rows. After the last holder,
// brought closes m.arrived.
func (m *Repartition) brought() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left--; m.left == 0 {
		close(m.arrived)
	}
}
