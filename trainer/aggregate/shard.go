package aggregate

import (
	"fmt"
	"sync"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/sparse"
)

// Shard is a piece of a variable that this task stores: the values, the
// optimiser state, and for each group of workers the gradient sum of the
// current step. Each group works on one step at a time. Different groups may
// use a shard at the same time.
type Shard struct {
	layout.Piece
	rowBytes int                        // bytes of a row of a sparse variable; 0 for a dense variable
	given    bool                       // true if the chief (worker 0) sends the initial values; false if they are drawn from a seed, or if the variable is dense
	rowMoved int                        // bytes of a row with its optimiser state; both are sent when another task becomes the row's holder; 0 for a dense variable
	divides  bool                       // true if the gradient sum is divided by the number of virtual workers (parts of the batch) that contributed to it
	measured bool                       // true if the gradient is included in the global gradient norm
	isLoss   bool                       // true if the shard holds the step's loss and metrics instead of a variable
	rate     func(rate float64) float64 // returns the variable's learning rate; the parameter is the learning rate of the step
	lossSum  bool                       // true if the loss of a step is the sum of the virtual workers' losses; false if it is their mean
	sums     []groupSum                 // indexed by group of workers: the gradient sum of the group's current step
	device   DeviceMemory               // stores the values, for example on a GPU; nil if the field state stores them; set before the first step

	mu      sync.RWMutex // guards state, updates, counted and uneven
	state   state
	updates uint64 // number of steps that were applied to the shard
	counted bool   // true if SetUpdates has set updates to the count of the shard's previous holder
	uneven  bool   // true if the job resumed from a checkpoint: then the tasks that stored parts of this shard before may have different values of updates

	asking sync.Mutex
	asked  sparse.Requests // rows that workers have requested, by step; guarded by asking
}

// groupSum is the gradient sum of one group of workers for one shard.
type groupSum struct {
	*accumulator
	total   total     // the complete gradient sum until it is applied; nil if no virtual worker contributed
	took    bool      // true if at least one virtual worker (part of the batch) took part in the step, even if it contributed no row of this shard
	squares []float64 // sums of squares of total, one per block or row; empty if no norm was requested
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

// Receive reads one input of the gradient sum of a group of workers. read
// fills a slice with the input's data, which has length bytes. present is
// false if the input has no rows.
func (s *Shard) Receive(group, input int, length uint64, read func([]byte) error) (present bool, err error) {
	return s.sums[group].receive(input, length, read)
}

// Lend adds sum to the gradient sum of a group of workers, as the input with
// the number input. The memory belongs to the caller, who must not change it
// before the step is over.
func (s *Shard) Lend(group, input int, sum Sum) { s.sums[group].lend(input, sum) }

// complete records that an input of the gradient sum has arrived, or that the
// input has no data. It returns true only to the caller whose input was the
// last one.
func (g *groupSum) complete(input int, present bool) bool {
	_, sum, done := g.arrive(input, present)
	if done && sum != nil {
		g.total = sum.(total)
	}
	return done
}

// take returns the gradient sum and removes it. took reports whether any
// virtual worker took part in the step.
func (g *groupSum) take() (t total, took bool) {
	t, g.total = g.total, nil
	return t, g.took
}

// settle records whether any virtual worker took part in the step. If measure
// is true, it also stores the sums of squares of the gradient. It computes
// them, or gets them from h if h is not nil.
func (g *groupSum) settle(took, measure bool, h DeviceMemory) {
	g.took = took
	switch g.squares = g.squares[:0]; {
	case !measure || g.total == nil:
	case h != nil:
		g.squares = h.Squares(g.piece.Variable, g.squares)
	default:
		g.squares = g.total.squares(g.squares)
	}
}

// settle completes the gradient sum of a group of workers: if the gradient is
// a mean, settle divides the sum by the number of virtual workers. If measure
// is true, it also computes the sums of squares for the gradient norm.
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
	g.settle(virtualWorkers > 0, measure && s.measured, s.device)
}

// apply updates the shard's values by the gradient sum times scale. A sparse
// variable counts an update even if none of this shard's rows had a gradient.
// Adam's bias correction uses the count, which must not depend on how a table
// is cut into shards.
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

// Snapshot copies the values into the copy with index readerGroup (a group of workers
// that read the same copy by Value). If readerGroup is -1, Snapshot copies nothing
// and Value returns the values themselves. A sparse shard has no copies: Value
// returns nil, and workers read single rows.
func (s *Shard) Snapshot(readerGroup int) {
	if c, whole := s.state.(copier); whole {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.keep(readerGroup)
	}
}

// Value returns the copy that Snapshot made for this readerGroup, a group of workers
// that read the same copy. If readerGroup is -1, Value returns the values
// themselves.
func (s *Shard) Value(readerGroup int) []byte {
	if c, whole := s.state.(copier); whole {
		return c.value(readerGroup)
	}
	return nil
}

// Filled reports whether the chief (worker 0) sends the shard's initial
// values, and returns their size in bytes.
func (s *Shard) Filled() (bytes int, ok bool) {
	if s.rowBytes > 0 {
		return s.Count * s.rowBytes, s.given
	}
	return len(s.Value(-1)), !s.isLoss
}

// Fill sets the initial values of all rows of a sparse shard.
func (s *Shard) Fill(values []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.(filler).fill(values)
}

// RowBytes returns the size of a row in bytes; 0 if the variable is dense.
func (s *Shard) RowBytes() int { return s.rowBytes }

// Bounds returns the range [lo, hi) of rows of a sparse variable that the
// shard holds.
func (s *Shard) Bounds() (lo, hi int64) { return int64(s.Offset), int64(s.Offset + s.Count) }

// Read copies the rows with these indices to into, in the order of index.
func (s *Shard) Read(index []int64, into []byte) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.(reader).read(index, into)
}

// CopyRows fills into with whole consecutive rows, beginning with row first.
func (s *Shard) CopyRows(first int64, into []byte) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.(reader).copyRows(first, into)
}

// Ask records that a worker has requested rows for a step.
func (s *Shard) Ask(step uint64, index []int64) {
	lo, hi := s.Bounds()
	s.asking.Lock()
	defer s.asking.Unlock()
	s.asked.Add(step, lo, hi, index)
}

// Split divides the rows in index by whether a worker has requested them for a
// step: taken has the requested rows, and free the others.
func (s *Shard) Split(step uint64, index []int64) (free, taken []int64) {
	lo, _ := s.Bounds()
	s.asking.Lock()
	defer s.asking.Unlock()
	return s.asked.Split(step, lo, index)
}

// Changed returns the rows in index that the last step changed.
func (s *Shard) Changed(index []int64) []int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.(reader).changed(index)
}

// Export appends to into the rows in [from, to) that were ever updated, until
// the frame is full. next is the row at which the next call continues. An
// empty frame means that no rows are left.
func (s *Shard) Export(into []byte, from, to int64) (frame []byte, next int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.(movable).export(into, from, to)
}

// MaxFrame returns the maximum size in bytes of a frame of rows [from, to) for
// Accept.
func (s *Shard) MaxFrame(from, to int64) uint64 {
	return MaxRows(int(min(to-from, int64(frameRows(s.rowMoved)))), s.rowMoved)
}

// Accept stores the rows in frame, which the method Export of another Shard
// has written. All rows must be in [from, to). next is the row after the last
// one stored.
func (s *Shard) Accept(frame []byte, from, to int64) (next int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.(movable).accept(frame, from, to)
}

// Adopt copies rows [from, to) from another shard in this process. It also
// takes over that shard's number of updates.
func (s *Shard) Adopt(other *Shard, from, to int64) error {
	for frame, next := other.Export(nil, from, to); len(frame) > 0; frame, next = other.Export(frame[:0], next, to) {
		if _, err := s.Accept(frame, from, to); err != nil {
			return err
		}
	}
	return s.SetUpdates(other.Updates())
}

// Updates returns the number of training steps that were applied to the shard.
func (s *Shard) Updates() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.updates
}

// SetUpdates sets the number of updates of this shard to that of the task that
// stored its rows before. All tasks that store rows of one variable must
// report the same number. Only after a resume from a checkpoint may they
// differ; then the highest number is used.
func (s *Shard) SetUpdates(updates uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.counted && s.uneven:
		updates = max(s.updates, updates)
	case s.counted && s.updates != updates:
		return fmt.Errorf("%d updates of variable %d, another shard holder has %d", updates, s.Variable, s.updates)
	}
	s.updates, s.counted = updates, true
	return nil
}
