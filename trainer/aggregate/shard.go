package aggregate

import (
	"fmt"
	"sync"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/sparse"
)

// Shard is a piece that a task holds: its values, what the optimiser keeps for
// them, and for every group the sum of the step that is on its way. A group is
// used by one step at a time; different groups may use a shard side by side.
type Shard struct {
	layout.Piece
	rowBytes int                        // bytes of a row of a sparse variable; 0 for a dense variable
	given    bool                       // the chief has the first values of the rows
	rowMoved int                        // bytes of a row and its optimiser state, as a row moves; 0 for a dense variable
	divides  bool                       // the sum is divided by the number of virtual workers in it
	measured bool                       // the sum counts in the global norm
	isLoss   bool                       // the shard holds the step's loss and metrics, not a variable
	rate     func(rate float64) float64 // the variable's learning rate, of that of a step
	lossSum  bool                       // the loss is the sum of the virtual workers' losses, not the mean
	sums     []groupSum                 // by group
	home     Home                       // has the values; nil means that state has them. Set before the first step

	mu      sync.RWMutex // guards the rest
	state   state
	updates uint64 // number of steps that were applied to the shard
	counted bool   // SetUpdates has set updates to the count of a former holder
	uneven  bool   // former holders may differ in their count: the job resumed from a checkpoint

	asking sync.Mutex
	asked  sparse.Wishes // rows that workers have requested, by step
}

// groupSum is a group's sum in a shard.
type groupSum struct {
	*accumulator
	total   total     // the complete sum until it is applied; nil if no virtual worker contributed to it
	took    bool      // some virtual worker took part in the step, with rows of this shard or without
	squares []float64 // sums of squares of total, by block or row; empty if no norm is asked for
}

func newShard(d *layout.Declaration, plans []*layout.Plan, p layout.Piece, memory []byte) (*Shard, error) {
	v := d.Variable(p.Variable)
	s := &Shard{Piece: p, measured: d.HasGradient(p), isLoss: p.Variable == d.LossIndex(), lossSum: d.Sum, uneven: d.Checkpoint != "", rate: v.Rate}
	if s.divides = d.Divides(v); v.Sparse != nil {
		s.divides = v.Sparse.Average
		s.rowBytes, s.given = v.UnitBytes(), v.Sparse.First.Given()
		s.rowMoved = s.rowBytes * (1 + d.Rule(v).Slots())
	}
	for _, plan := range plans {
		s.sums = append(s.sums, groupSum{accumulator: newAccumulator(v, p, plan)})
	}
	var err error
	s.state, err = newState(d, p, memory)
	return s, err
}

// Receive reads the payload of a contribution to a group's sum, of length
// bytes, and reports whether there is anything in it.
func (s *Shard) Receive(group, input int, length uint64, read func([]byte) error) (present bool, err error) {
	return s.sums[group].receive(input, length, read)
}

// Lend gives a group's sum an input in memory of the caller, until the step is over.
func (s *Shard) Lend(group, input int, sum Sum) { s.sums[group].lend(input, sum) }

// complete says that an input is there, or absent. It reports true to the caller
// that thereby completes the total.
func (g *groupSum) complete(input int, present bool) bool {
	_, sum, done := g.arrive(input, present)
	if done && sum != nil {
		g.total = sum.(total)
	}
	return done
}

// take returns the total, which is then gone, and whether the step counts.
func (g *groupSum) take() (t total, took bool) {
	t, g.total = g.total, nil
	return t, g.took
}

// settle notes whether the step counts, and measures the total, or has it measured
// by the home of the variable if there is one.
func (g *groupSum) settle(took, measure bool, h Home) {
	g.took = took
	switch g.squares = g.squares[:0]; {
	case !measure || g.total == nil:
	case h != nil:
		g.squares = h.Squares(g.piece.Variable, g.squares)
	default:
		g.squares = g.total.squares(g.squares)
	}
}

// settle divides a complete sum by the virtual workers in it, if it is to be
// averaged, and measures it.
func (s *Shard) settle(group, virtualWorkers int, measure bool) {
	g := &s.sums[group]
	switch {
	case g.total == nil:
	case s.isLoss:
		numbers := g.total.(elements[float64])
		if !s.lossSum {
			numbers[:1].divide(virtualWorkers)
		}
		numbers[1:].divide(virtualWorkers)
	case s.divides:
		g.total.divide(virtualWorkers)
	}
	g.settle(virtualWorkers > 0, measure && s.measured, s.home)
}

// apply updates the values by the settled sum times scale. The updates of a
// sparse variable are counted also if no row here was touched: the count,
// which Adam's correction needs, must not depend on how a table is cut.
func (s *Shard) apply(group int, rate, scale float64) error {
	t, took := s.sums[group].take()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.state.apply(t, optimizer.Step{Number: s.updates, Rate: s.rate(rate), Scale: scale})
	if t != nil || s.rowBytes > 0 && took {
		s.updates++
	}
	return err
}

// Keep copies the values for an audience; Value returns that copy. No
// audience, -1, is given the values themselves. Value is nil for rows, which
// are read one by one.
func (s *Shard) Keep(audience int) {
	if c, whole := s.state.(copier); whole {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.keep(audience)
	}
}

// Value returns a copy that Keep made, or the values.
func (s *Shard) Value(audience int) []byte {
	if c, whole := s.state.(copier); whole {
		return c.value(audience)
	}
	return nil
}

// Filled reports whether the chief sends the first values, and returns how many bytes.
func (s *Shard) Filled() (bytes int, ok bool) {
	if s.rowBytes > 0 {
		return s.Count * s.rowBytes, s.given
	}
	return len(s.Value(-1)), !s.isLoss
}

// Fill gives rows their first values.
func (s *Shard) Fill(values []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.(filler).fill(values)
}

// RowBytes is the size of a row; 0: the shard is dense.
func (s *Shard) RowBytes() int { return s.rowBytes }

// Bounds returns the rows [lo, hi) of a sparse shard.
func (s *Shard) Bounds() (lo, hi int64) { return int64(s.Offset), int64(s.Offset + s.Count) }

// Read copies rows by index to into.
func (s *Shard) Read(index []int64, into []byte) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.(reader).read(index, into)
}

// CopyRows copies whole rows from first on.
func (s *Shard) CopyRows(first int64, into []byte) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.(reader).copyRows(first, into)
}

// Ask notes that rows are asked for, for a step.
func (s *Shard) Ask(step uint64, index []int64) {
	lo, hi := s.Bounds()
	s.asking.Lock()
	defer s.asking.Unlock()
	s.asked.Add(step, lo, hi, index)
}

// Split returns those rows that nobody asked for, for a step, and the others.
func (s *Shard) Split(step uint64, index []int64) (free, taken []int64) {
	lo, _ := s.Bounds()
	s.asking.Lock()
	defer s.asking.Unlock()
	return s.asked.Split(step, lo, index)
}

// Changed returns those of some rows that the last step changed.
func (s *Shard) Changed(index []int64) []int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.(reader).changed(index)
}

// Export appends rows from row from on, before row to, as many as fit in a
// frame, and returns the row to go on with; nothing: there are no more.
func (s *Shard) Export(into []byte, from, to int64) (frame []byte, next int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.(movable).export(into, from, to)
}

// MaxFrame bounds the frame that Accept takes.
func (s *Shard) MaxFrame(from, to int64) uint64 {
	return MaxRows(int(min(to-from, int64(frameRows(s.rowMoved)))), s.rowMoved)
}

// Accept takes what Export made, of rows in [from, to), and returns the row
// after the last of them.
func (s *Shard) Accept(frame []byte, from, to int64) (next int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.(movable).accept(frame, from, to)
}

// Adopt copies rows [from, to) of another shard of this process, and its count.
func (s *Shard) Adopt(other *Shard, from, to int64) error {
	for frame, next := other.Export(nil, from, to); len(frame) > 0; frame, next = other.Export(frame[:0], next, to) {
		if _, err := s.Accept(frame, from, to); err != nil {
			return err
		}
	}
	return s.SetUpdates(other.Updates())
}

// Updates is how many steps were applied.
func (s *Shard) Updates() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.updates
}

// SetUpdates takes the count of a holder that rows came from. It is the same
// wherever pieces of a variable are, or the highest holds if a checkpoint had
// others.
func (s *Shard) SetUpdates(updates uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.counted && s.uneven:
		updates = max(s.updates, updates)
	case s.counted && s.updates != updates:
		return fmt.Errorf("%d updates of variable %d, elsewhere it had %d", updates, s.Variable, s.updates)
	}
	s.updates, s.counted = updates, true
	return nil
}
