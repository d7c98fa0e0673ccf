package owner

import (
	"slices"
	"sync/atomic"
)

// outbox holds the sums of the parts that a contributor brings until all
// variables of a bucket have theirs.
type outbox struct {
	parts   []int
	buckets [][]int // its variables; all sparse ones together, the tally alone
	of      []int   // by variable: its bucket
	sums    [][]any // by variable and part
	left    [][]atomic.Int32
}

func newOutbox(d *Declaration, parts []int, has func(variable int) bool) *outbox {
	o := &outbox{parts: parts, of: make([]int, len(d.Variables)+1)}
	all := Buckets(d.Variables, d.BucketBytes)
	var sparse []int
	for i, v := range d.Variables {
		if v.Sparse != nil {
			sparse = append(sparse, i)
		}
	}
	for _, bucket := range append(all, sparse, []int{d.tally()}) {
		bucket = slices.DeleteFunc(bucket, func(i int) bool { return !has(i) })
		if len(bucket) > 0 {
			o.buckets = append(o.buckets, bucket)
		}
	}
	for b, bucket := range o.buckets {
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
		o.sums = append(o.sums, make([]any, len(parts)))
	}
	return o
}

// put notes a variable's sum of a part. It reports true to the caller that
// thereby filled the bucket's part.
func (o *outbox) put(variable, part int, sum any) (bucket int, full bool) {
	bucket = o.of[variable]
	o.sums[variable][part] = sum
	if o.left[bucket][part].Add(-1) > 0 {
		return bucket, false
	}
	o.left[bucket][part].Store(int32(len(o.buckets[bucket]))) // for the next step
	return bucket, true
}

// cutPiece returns a piece of what put was given.
func (o *outbox) cutPiece(d *Declaration, p Piece, part int) any {
	sum := o.sums[p.Variable][part]
	v := d.variable(p.Variable)
	if v.Sparse != nil {
		return cutRows(sum, p)
	}
	size := v.Dtype.Size()
	return sum.([]byte)[p.Offset*size : (p.Offset+p.Count)*size]
}
