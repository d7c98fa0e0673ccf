package aggregate

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// Sum is a sum of gradients of a variable or of a piece of it. It consists of
// elements if the variable is dense, and of rows if it is sparse.
type Sum interface {
	// Cut returns the part of the sum that belongs to piece p. The result
	// shares the memory of the sum.
	Cut(p layout.Piece) Sum
	// Encode returns the sum as the payload of a frame. For a sparse variable,
	// it appends the rows to the slice into. For a dense one, it returns the
	// elements without a copy, because they have the same format in memory and
	// on the wire.
	Encode(into []byte) []byte
	// Rows returns the number of rows; -1 if the variable is dense.
	Rows() int
}

// total is a complete gradient sum, which can be divided by a number and whose
// squares can be summed.
type total interface {
	divide(by int)
	squares(into []float64) []float64
}

// elements is the gradient sum of a dense variable or of a piece of it.
type elements[T wire.Float] []T

func (e elements[T]) Cut(p layout.Piece) Sum { return e[p.Offset : p.Offset+p.Count] }
func (e elements[T]) Encode([]byte) []byte   { return wire.Bytes(e) }
func (elements[T]) Rows() int                { return -1 }

func (e elements[T]) divide(by int) {
	divisor := T(by)
	switch {
	case by == 1:
	// Multiplying by the reciprocal is faster. For a power of two the
	// reciprocal is exact, so the result has the same bits.
	case by&(by-1) == 0:
		factor := 1 / divisor
		for i := range e {
			e[i] *= factor
		}
	default:
		for i := range e {
			e[i] /= divisor
		}
	}
}

func (e elements[T]) squares(into []float64) []float64 {
	for len(e) > 0 {
		n := min(layout.BlockElements, len(e))
		into = append(into, optimizer.SumOfSquares(e[:n]))
		e = e[n:]
	}
	return into
}

func addElements[T wire.Float](into, from elements[T]) elements[T] {
	from = from[:len(into)]
	for i := range into {
		into[i] += from[i]
	}
	return into
}

// rows is the gradient sum of some rows of a sparse variable.
type rows[T wire.Float] sparse.Rows[T]

func (r rows[T]) Cut(p layout.Piece) Sum {
	return rows[T](sparse.Rows[T](r).Cut(int64(p.Offset), int64(p.Offset+p.Count)))
}

func (r rows[T]) Encode(into []byte) []byte {
	if len(r.Index) == 0 {
		return into // without rows, the payload is empty
	}
	return sparse.Append(into, sparse.Rows[T](r))
}

func (r rows[T]) Rows() int     { return len(r.Index) }
func (r rows[T]) divide(by int) { elements[T](r.Values).divide(by) }

func (r rows[T]) squares(into []float64) []float64 { return sparse.Rows[T](r).SumOfSquares(into) }

func mergeRows[T wire.Float](a, b rows[T]) rows[T] {
	return rows[T](sparse.Merge(sparse.Rows[T]{}, sparse.Rows[T](a), sparse.Rows[T](b)))
}

// MaxRows returns an upper bound in bytes for the encoding of rows that have
// rowBytes bytes each.
func MaxRows(rows, rowBytes int) uint64 { return 10 + uint64(rows)*uint64(10+rowBytes) }

// plus returns the sum of two gradients of the same variable. The result may
// reuse the memory of into.
func plus(into, from Sum) Sum {
	switch into := into.(type) {
	case elements[float32]:
		return addElements(into, from.(elements[float32]))
	case elements[float64]:
		return addElements(into, from.(elements[float64]))
	case rows[float32]:
		return mergeRows(into, from.(rows[float32]))
	}
	return mergeRows(into.(rows[float64]), from.(rows[float64]))
}

// zeros returns a dense sum of n elements that are zero.
func zeros(t layout.Dtype, n int) Sum {
	if t == layout.Float32 {
		return make(elements[float32], n)
	}
	return make(elements[float64], n)
}

// decodeRows decodes the rows of piece p of a sparse variable. It reuses the
// memory of spare, which is an old sum or nil. An empty payload means no rows.
func decodeRows[T wire.Float](raw []byte, v layout.Variable, p layout.Piece, spare Sum) (Sum, error) {
	if len(raw) == 0 {
		return rows[T]{Width: v.Width()}, nil
	}
	memory, _ := spare.(rows[T])
	came, err := sparse.Decode(raw, int64(p.Offset), int64(p.Offset+p.Count), v.Width(), sparse.Rows[T](memory))
	return rows[T](came), err
}

// accumulator adds the gradients for one piece of a variable, once per step. A
// layout.Plan fixes the order of the additions. Several goroutines may deliver
// different gradients at the same time.
type accumulator struct {
	variable  layout.Variable
	piece     layout.Piece
	reduction *layout.Reduction[Sum]
	inputs    []Sum    // by input of the plan: the gradients to add, set by receive or lend
	received  []Sum    // by input: memory into which receive decodes; nil before the first contribution
	raw       [][]byte // by input: encoded rows as received; nil for a dense variable
}

// newAccumulator returns an accumulator for piece p of variable v. It adds the
// gradients in the order of plan, a tree of additions.
func newAccumulator(v layout.Variable, p layout.Piece, plan *layout.Plan) *accumulator {
	n := len(plan.Inputs)
	return &accumulator{v, p, layout.NewReduction(plan, plus), make([]Sum, n), make([]Sum, n), make([][]byte, n)}
}

// receive reads one input of the sum from a payload of length bytes. present
// is false if the payload has no rows.
func (a *accumulator) receive(input int, length uint64, read func([]byte) error) (present bool, err error) {
	if a.variable.Sparse != nil {
		return a.receiveRows(input, length, read)
	}
	if want := a.piece.Count * a.variable.UnitBytes(); length != uint64(want) {
		return false, fmt.Errorf("gradient of variable %d of %d bytes, want %d", a.piece.Variable, length, want)
	}
	if a.received[input] == nil {
		a.received[input] = zeros(a.variable.Dtype, a.piece.Count)
	}
	a.lend(input, a.received[input])
	return true, read(a.received[input].Encode(nil))
}

func (a *accumulator) receiveRows(input int, length uint64, read func([]byte) error) (present bool, err error) {
	if most := MaxRows(a.piece.Count, a.variable.UnitBytes()); length > most {
		return false, fmt.Errorf("rows of variable %d of %d bytes, want at most %d", a.piece.Variable, length, most)
	}
	raw := slices.Grow(a.raw[input][:0], int(length))[:length]
	a.raw[input] = raw
	if err := read(raw); err != nil {
		return false, err
	}
	decode := decodeRows[float64]
	if a.variable.Dtype == layout.Float32 {
		decode = decodeRows[float32]
	}
	came, err := decode(raw, a.variable, a.piece, a.received[input])
	if err != nil {
		return false, fmt.Errorf("rows of variable %d: %w", a.piece.Variable, err)
	}
	a.received[input] = came
	a.lend(input, came)
	return came.Rows() > 0, nil
}

// lend makes s the gradients of one input, until lend is called again for that
// input.
func (a *accumulator) lend(input int, s Sum) { a.inputs[input] = s }

// arrive records that an input has arrived, or that the input has no data.
// done is true only for the caller whose input completes the sum of an output
// (a subtree of the plan). Then s is that sum, or nil if no input of the
// output had data.
func (a *accumulator) arrive(input int, present bool) (output int, s Sum, done bool) {
	if present {
		s = a.inputs[input]
	}
	return a.reduction.Arrive(input, s)
}

// WorkerSums adds the gradients that one worker's virtual workers (its parts of the
// batch) compute for one variable. It adds along the reduction tree as far as
// it can without gradients of other workers. It returns the sums of the
// subtrees that this completes.
type WorkerSums struct {
	variable layout.Variable
	sums     *accumulator
	memory   [][]byte // by virtual worker (part of the batch), counted from the worker's first one: memory for the gradient; nil for a sparse variable
}

// NewWorkerSums returns WorkerSums for variable v. They add the gradients in
// the order of plan, a tree of additions.
func NewWorkerSums(v layout.Variable, plan *layout.Plan) *WorkerSums {
	o := &WorkerSums{variable: v, sums: newAccumulator(v, layout.Piece{Count: v.Units()}, plan)}
	for i := range plan.Inputs {
		if v.Sparse != nil {
			break
		}
		s := zeros(v.Dtype, v.NumElements())
		o.sums.lend(i, s)
		o.memory = append(o.memory, s.Encode(nil))
	}
	return o
}

// Memory returns the memory into which the gradient of a virtual worker (part
// of the batch) must be written. virtualWorker is its number, counted from the
// worker's first virtual worker. The result is nil for a sparse variable.
func (o *WorkerSums) Memory(virtualWorker int) []byte {
	if o.memory == nil {
		return nil
	}
	return o.memory[virtualWorker]
}

// SetRows sets the gradient of one virtual worker (part of the batch) for a
// sparse variable.
func (o *WorkerSums) SetRows(virtualWorker int, index []int64, values []byte) error {
	v := o.variable
	var s Sum
	var err error
	if v.Dtype == layout.Float32 {
		s, err = rowsOf[float32](v, index, values)
	} else {
		s, err = rowsOf[float64](v, index, values)
	}
	if err == nil {
		o.sums.lend(virtualWorker, s)
	}
	return err
}

func rowsOf[T wire.Float](v layout.Variable, index []int64, values []byte) (Sum, error) {
	r := sparse.Rows[T]{Index: index, Values: wire.Floats[T](values), Width: v.Width()}
	return rows[T](r), r.Check(0, int64(v.Shape[0]), v.Width())
}

// Arrive records that the gradient of a virtual worker (part of the batch) is
// complete, or, if present is false, that the virtual worker has none. done is
// true if this completes the sum of a part (a subtree of the reduction tree).
// Then s is that sum, or nil if no virtual worker of the part had data.
func (o *WorkerSums) Arrive(virtualWorker int, present bool) (part int, s Sum, done bool) {
	return o.sums.arrive(virtualWorker, present)
}

// Outbox collects the gradient sums that a worker will send. It reports when
// all variables of a bucket (variables that are sent together) have their
// sums.
type Outbox struct {
	Parts   []int            // vertices of layout.Tree, the reduction tree, whose sums the worker sends, from left to right
	Buckets [][]int          // by bucket: indices of its variables; all sparse variables share one bucket, the loss has a bucket of its own
	of      []int            // by variable: index of its bucket; -1 means that the variable is not sent
	sums    [][]Sum          // by variable and part: the latest gradient sum; nil if no virtual worker had data
	left    [][]atomic.Int32 // by bucket (variables that are sent together) and part: number of variables whose sum is not complete yet in this step
}

// NewOutbox returns an Outbox for the variables for which has returns true,
// and groups these variables into buckets.
func NewOutbox(d *layout.Declaration, parts []int, has func(variable int) bool) *Outbox {
	o := &Outbox{Parts: parts, of: slices.Repeat([]int{-1}, len(d.Variables)+1)}
	all := layout.Buckets(d.Variables, d.BucketBytes)
	var sparse []int
	for i, v := range d.Variables {
		if v.Sparse != nil {
			sparse = append(sparse, i)
		}
	}
	for _, bucket := range append(all, sparse, []int{d.LossIndex()}) {
		bucket = slices.DeleteFunc(bucket, func(i int) bool { return !has(i) })
		if len(bucket) > 0 {
			o.Buckets = append(o.Buckets, bucket)
		}
	}
	for b, bucket := range o.Buckets {
		left := make([]atomic.Int32, len(parts))
		for part := range left {
			left[part].Store(int32(len(bucket)))
		}
		o.left = append(o.left, left)
		for _, v := range bucket {
			o.of[v] = b
		}
	}
	for range o.of {
		o.sums = append(o.sums, make([]Sum, len(parts)))
	}
	return o
}

// Bucket returns the index of a variable's bucket (variables that are sent
// together); -1 if the variable is not sent.
func (o *Outbox) Bucket(variable int) int { return o.of[variable] }

// Put stores the gradient sum of one part (subtree of the reduction tree) of a
// variable. full is true if this was the part's last missing sum in the
// bucket.
func (o *Outbox) Put(variable, part int, s Sum) (bucket int, full bool) {
	bucket = o.of[variable]
	o.sums[variable][part] = s
	if o.left[bucket][part].Add(-1) > 0 {
		return bucket, false
	}
	o.left[bucket][part].Store(int32(len(o.Buckets[bucket]))) // reset the counter for the next step
	return bucket, true
}

// Cut returns piece p of the gradient sum that Put stored for a part, a
// subtree of the reduction tree.
func (o *Outbox) Cut(p layout.Piece, part int) Sum { return o.sums[p.Variable][part].Cut(p) }
