package owner

import (
	"fmt"
	"sync"

	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/wire"
)

// slot is a piece on its owner: its value, the optimiser's state, and for
// every group the sum of the step that is on its way. A group is used by one
// step at a time; different groups may use a slot side by side.
type slot interface {
	piece() Piece
	// receive reads the payload of a contribution, of length bytes, to where
	// input expects it, and reports whether there is anything in it.
	receive(group, input int, length uint64, read func([]byte) error) (present bool, err error)
	// lend gives input memory of the caller instead, until the step is over:
	// bytes for a dense piece, sparse.Rows for another.
	lend(group, input int, memory any)
	// arrive says that input is there, or absent. It reports true to the
	// caller that thereby completed the sum.
	arrive(group, input int, present bool) bool
	// settle divides the sum by the leaves in it where it is to be averaged.
	settle(group, leaves int)
	// measure computes the sums of squares of the settled sum, by block or
	// row; squares returns them until the next step.
	measure(group int)
	squares(group int) []float64
	// apply updates the value by the settled sum times scale.
	apply(group int, rate, scale float64) error
	// keep copies the value for an audience, which value returns then. No
	// audience, -1, is given the value itself.
	keep(audience int)
	value(audience int) []byte // nil: rows are pulled
}

// dense is a slot of a piece whose elements all travel.
type dense[T wire.Float] struct {
	Piece
	values  []T
	state   *optimizer.State[T]
	average bool
	follows bool // takes no part in the norm
	sums    []denseSum[T]

	mu      sync.Mutex // the rest, and values where there are several groups
	updates uint64
	kept    [][]T // by audience
}

// denseSum is a group's sum.
type denseSum[T wire.Float] struct {
	*progress[[]T]
	buffers [][]T // by input; nil until something is received
	inputs  []operand[[]T]
	total   operand[[]T]
	squares []float64
}

func newDense[T wire.Float](d *Declaration, r *roster, p Piece, memory []byte) (*dense[T], error) {
	v := d.variable(p.Variable)
	s := &dense[T]{Piece: p, average: !d.Sum || v.follows(), follows: v.follows()}
	s.values = wire.Floats[T](memory)
	if memory == nil {
		s.values = make([]T, p.Count)
	}
	for _, plan := range r.plans {
		s.sums = append(s.sums, denseSum[T]{
			progress: newProgress(plan, addDense[T]),
			buffers:  make([][]T, len(plan.inputs)),
			inputs:   make([]operand[[]T], len(plan.inputs)),
		})
	}
	if d.audiences() > 0 {
		s.kept = make([][]T, d.audiences())
	}
	var err error
	s.state, err = optimizer.New[T](v.settings(d.Optimizer), p.Count)
	return s, err
}

func addDense[T wire.Float](into, from []T) []T {
	from = from[:len(into)]
	for i := range into {
		into[i] += from[i]
	}
	return into
}

func (s *dense[T]) piece() Piece { return s.Piece }

func (s *dense[T]) receive(group, input int, length uint64, read func([]byte) error) (bool, error) {
	sum := &s.sums[group]
	if want := len(wire.Bytes(s.values)); length != uint64(want) {
		return false, fmt.Errorf("gradient of variable %d of %d bytes, want %d", s.Variable, length, want)
	}
	if sum.buffers[input] == nil {
		sum.buffers[input] = make([]T, s.Count)
	}
	sum.inputs[input].sum = sum.buffers[input]
	return true, read(wire.Bytes(sum.buffers[input]))
}

func (s *dense[T]) lend(group, input int, memory any) {
	s.sums[group].inputs[input].sum = wire.Floats[T](memory.([]byte))
}

func (s *dense[T]) arrive(group, input int, present bool) bool {
	sum := &s.sums[group]
	x := operand[[]T]{present, sum.inputs[input].sum}
	_, total, done := sum.progress.arrive(input, x)
	if done {
		sum.total = total
	}
	return done
}

func (s *dense[T]) settle(group, leaves int) {
	if total := s.sums[group].total; total.present && s.average {
		divide(total.sum, leaves)
	}
}

func divide[T wire.Float](x []T, by int) {
	divisor := T(by)
	switch {
	case by == 1:
	case by&(by-1) == 0: // the same bits, faster: the reciprocal of a power of two is exact
		factor := 1 / divisor
		for i := range x {
			x[i] *= factor
		}
	default:
		for i := range x {
			x[i] /= divisor
		}
	}
}

func (s *dense[T]) measure(group int) {
	sum := &s.sums[group]
	sum.squares = sum.squares[:0]
	if s.follows || !sum.total.present {
		return
	}
	for x := sum.total.sum; len(x) > 0; {
		n := min(BlockElements, len(x))
		sum.squares = append(sum.squares, optimizer.SumOfSquares(x[:n]))
		x = x[n:]
	}
}

func (s *dense[T]) squares(group int) []float64 { return s.sums[group].squares }

func (s *dense[T]) apply(group int, rate, scale float64) error {
	total := s.sums[group].total
	s.sums[group].total = operand[[]T]{}
	if !total.present {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Apply(optimizer.Step{Number: s.updates, Rate: rate, Scale: scale}, s.values, total.sum)
	s.updates++
	return nil
}

func (s *dense[T]) keep(audience int) {
	if audience < 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept[audience] == nil {
		s.kept[audience] = make([]T, s.Count)
	}
	copy(s.kept[audience], s.values)
}

func (s *dense[T]) value(audience int) []byte {
	if audience < 0 {
		return wire.Bytes(s.values)
	}
	return wire.Bytes(s.kept[audience])
}

// tally is the slot of the step's loss and metrics: the sum is the value.
type tally struct {
	*dense[float64]
	sum bool // losses are added
}

func (t tally) settle(group, leaves int) {
	total := t.sums[group].total
	if !total.present {
		return
	}
	if !t.sum {
		divide(total.sum[:1], leaves)
	}
	divide(total.sum[1:], leaves)
}

func (t tally) apply(group int, _, _ float64) error {
	total := t.sums[group].total
	t.sums[group].total = operand[[]float64]{}
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.values)
	copy(t.values, total.sum)
	return nil
}

func (tally) measure(int) {} // it is no gradient
