package embedding

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/exchange"
	"github.com/plx-run/plx/trainer/replica"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
	"gorgonia.org/tensor"
)

// table is one table. A position is one index of one lookup of one virtual
// worker: positions are in the order of virtual workers, and in each of them in
// the order of lookups.
type table struct {
	Table
	at        int        // index among the tables
	bytes     int        // of a row
	positions int        // of one virtual worker
	now       request    // the rows of the step
	ahead     request    // the rows that were requested ahead
	next      []int64    // what Prefetch was told, by position
	spare     []int64    // memory to compare with
	rows      []byte     // of the step, by position
	combiners []combiner // by virtual worker of this worker
}

func newTable(of Table, at int) *table {
	return &table{Table: of, at: at, bytes: of.Width * int(of.Dtype.Size())}
}

// request are the rows of all positions, each once.
type request struct {
	index  []int64 // by position
	unique []int64
	rows   []byte // by unique
	lookup sparse.Lookup[float32]
}

// set makes index the rows of the positions, with so many bytes each.
func (r *request) set(index []int64, bytes int) {
	r.index, r.unique = index, r.lookup.Set(index)
	r.rows = room(r.rows, len(r.unique)*bytes)
}

// spread copies rows to positions, as words of 4 bytes whatever their type.
func (r *request) spread(bytes int, into []byte) {
	r.lookup.Gather(wire.Floats[float32](r.rows), bytes/4, wire.Floats[float32](into))
}

// combiner adds the gradients of equal rows.
type combiner interface {
	combine(index []int64, gradient []byte, width int) (rows []int64, sums []byte)
}

type combinerOf[T wire.Float] struct{ lookup sparse.Lookup[T] }

func (c *combinerOf[T]) combine(index []int64, gradient []byte, width int) ([]int64, []byte) {
	c.lookup.Set(index)
	sum := c.lookup.Combine(wire.Floats[T](gradient), width)
	return sum.Index, wire.Bytes(sum.Values)
}

// aim makes the rows of a checked feed those of the step. They are still to be
// got.
func (t *table) aim(r *replica.Replica, feed Feed, vws int) {
	t.now.set(t.arrange(r, feed, vws, t.now.index), t.bytes)
}

// wanted are the step's rows.
func (t *table) wanted() exchange.Wanted {
	return exchange.Wanted{Variable: t.Variable, Index: t.now.unique, Into: t.now.rows}
}

// tell notes what a step to come will be fed.
func (t *table) tell(r *replica.Replica, feed Feed, vws int) {
	t.next = t.arrange(r, feed, vws, t.next)
}

// told reports whether feed is what tell noted.
func (t *table) told(r *replica.Replica, feed Feed, vws int) bool {
	t.spare = t.arrange(r, feed, vws, t.spare)
	return slices.Equal(t.next, t.spare)
}

// shift makes what tell noted the rows that are requested ahead.
func (t *table) shift() exchange.Wanted {
	index := t.next
	t.next = t.ahead.index
	t.ahead.set(index, t.bytes)
	return exchange.Wanted{Variable: t.Variable, Index: t.ahead.unique, Into: t.ahead.rows}
}

// hit reports whether the rows that were requested ahead are those of feed.
func (t *table) hit(r *replica.Replica, feed Feed, vws int) bool {
	t.spare = t.arrange(r, feed, vws, t.spare)
	return slices.Equal(t.ahead.index, t.spare)
}

// take makes the rows that were requested ahead those of the step.
func (t *table) take() { t.now, t.ahead = t.ahead, t.now }

// spread gives every position its row.
func (t *table) spread() {
	t.rows = room(t.rows, len(t.now.index)*t.bytes)
	t.now.spread(t.bytes, t.rows)
}

// arrange brings the feed's indices in the order of positions.
func (t *table) arrange(r *replica.Replica, feed Feed, vws int, into []int64) []int64 {
	places := r.Places(t.at)
	t.positions = 0
	for _, p := range places {
		t.positions += p.N
	}
	into = room(into, vws*t.positions)
	for len(t.combiners) < vws {
		t.combiners = append(t.combiners, t.combiner())
	}
	at := 0
	for _, p := range places {
		all := make([]int64, vws*p.N)
		if _, err := copyIndices(all, feed[p.Name]); err != nil {
			panic(err) // the feed was checked
		}
		for vw := range vws {
			copy(into[vw*t.positions+at:], all[vw*p.N:(vw+1)*p.N])
		}
		at += p.N
	}
	return into
}

func (t *table) combiner() combiner {
	if t.Dtype == tensor.Float64 {
		return &combinerOf[float64]{}
	}
	return &combinerOf[float32]{}
}

func (t *table) load(r *replica.Replica, vw int) {
	rows := t.rows[vw*t.positions*t.bytes:]
	for _, p := range r.Places(t.at) {
		rows = rows[copy(p.Rows, rows):]
	}
}

func (t *table) gradient(r *replica.Replica, vw int) ([]int64, []byte) {
	index := t.now.index[vw*t.positions : (vw+1)*t.positions]
	return t.combiners[vw].combine(index, r.TableGradient(t.at), t.Width)
}

// check reads what a feed gives for a lookup: indices of rows.
func (t *table) check(into []int64, from tensor.Tensor) error {
	n, err := copyIndices(into, from)
	if err != nil {
		return err
	}
	if n != len(into) {
		return fmt.Errorf("%d indices, the model wants %d", n, len(into))
	}
	for i, row := range into {
		if row < 0 || row >= int64(t.Rows) {
			return fmt.Errorf("index %d at position %d, the table %q has %d rows", row, i, t.Name, t.Rows)
		}
	}
	return nil
}

// copyIndices returns how many indices there are. It copies them if they fit.
func copyIndices(into []int64, from tensor.Tensor) (int, error) {
	if from.RequiresIterator() || from.DataOrder().IsColMajor() {
		return 0, fmt.Errorf("the indices do not lie in row-major order")
	}
	switch data := from.Data().(type) {
	case []int64:
		return narrow(into, data), nil
	case []int32:
		return narrow(into, data), nil
	case []int:
		return narrow(into, data), nil
	}
	return 0, fmt.Errorf("type %v: want int, int32 or int64", from.Dtype())
}

func narrow[T int | int32 | int64](into []int64, from []T) int {
	if len(into) == len(from) {
		for i, x := range from {
			into[i] = int64(x)
		}
	}
	return len(from)
}

// room returns n elements, in s if they fit.
func room[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}
