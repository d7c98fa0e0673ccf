package aggregate

import (
	"slices"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// Own adds what the virtual workers of one worker compute of one variable,
// along the tree, to the sums of the parts that the worker brings.
type Own struct {
	variable layout.Variable
	sums     accumulator
	memory   [][]byte // by virtual worker, counted from the worker's first; nil: rows
}

// NewOwn adds what plan says.
func NewOwn(v layout.Variable, plan *layout.Plan) *Own {
	o := &Own{variable: v, sums: newAccumulator(v, layout.Piece{Count: v.Units()}, plan)}
	for i := range plan.Inputs {
		if v.Sparse != nil {
			break
		}
		var s Sum = make(elements[float64], v.NumElements())
		if v.Dtype == layout.Float32 {
			s = make(elements[float32], v.NumElements())
		}
		o.sums.lend(i, s)
		o.memory = append(o.memory, s.Encode(nil))
	}
	return o
}

// Memory is where the gradient of a virtual worker belongs, counted from the
// worker's first; nil for rows.
func (o *Own) Memory(virtualWorker int) []byte {
	if o.memory == nil {
		return nil
	}
	return o.memory[virtualWorker]
}

// SetRows takes the gradient of a virtual worker for a sparse variable.
func (o *Own) SetRows(virtualWorker int, index []int64, values []byte) error {
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

// Arrive says that a virtual worker's contribution is there, or absent. done:
// the sum of a part is thereby complete; s is nil if all of it is absent.
func (o *Own) Arrive(virtualWorker int, present bool) (part int, s Sum, done bool) {
	return o.sums.arrive(virtualWorker, present)
}

// Outbox holds the sums of the parts that a contributor brings until all
// variables of a bucket have theirs.
type Outbox struct {
	Parts   []int   // vertices of layout.Tree whose sums the contributor brings, from left to right
	Buckets [][]int // variables; all sparse ones together, the loss alone
	of      []int   // by variable: its bucket, -1: none
	sums    [][]Sum // by variable and part
	left    [][]atomic.Int32
}

// NewOutbox makes buckets of the variables that has says.
func NewOutbox(d *layout.Declaration, parts []int, has func(variable int) bool) *Outbox {
	o := &Outbox{Parts: parts}
	for range len(d.Variables) + 1 {
		o.of = append(o.of, -1)
	}
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

// Bucket is the bucket of a variable, -1: it is in none.
func (o *Outbox) Bucket(variable int) int { return o.of[variable] }

// Put notes a variable's sum of a part. It reports true to the caller that
// thereby filled the bucket's part.
func (o *Outbox) Put(variable, part int, s Sum) (bucket int, full bool) {
	bucket = o.of[variable]
	o.sums[variable][part] = s
	if o.left[bucket][part].Add(-1) > 0 {
		return bucket, false
	}
	o.left[bucket][part].Store(int32(len(o.Buckets[bucket]))) // for the next step
	return bucket, true
}

// Cut returns a piece of what Put was given.
func (o *Outbox) Cut(p layout.Piece, part int) Sum { return o.sums[p.Variable][part].Cut(p) }

// Add adds sums of a dense variable, in order, to a new one; nil ones are
// skipped, and nil is the sum of none.
func Add(sums []Sum) (total Sum) {
	for _, s := range sums {
		switch {
		case s == nil:
		case total == nil:
			total = s.(number).times(s.Encode(nil), 1)
		default:
			total.(number).add(s)
		}
	}
	return total
}

// Times returns numbers that lie as those of a dense sum do, each n times.
func Times(like Sum, numbers []byte, n int) Sum { return like.(number).times(numbers, n) }

// number is a dense sum.
type number interface {
	add(other Sum)
	times(numbers []byte, n int) Sum
}

func (e elements[T]) add(other Sum) { addElements(e, other.(elements[T])) }

func (elements[T]) times(numbers []byte, n int) Sum {
	product := make(elements[T], 0, len(numbers))
	for _, x := range wire.Floats[T](numbers) {
		product = append(product, x*T(n))
	}
	return product
}
