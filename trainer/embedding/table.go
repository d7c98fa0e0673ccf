package embedding

import (
	"fmt"

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
	fed       []int64    // what the last feed asks for, by position
	next      []int64    // what Prefetch was told, by position
	rows      []byte     // of the step, by position
	combiners []combiner // by virtual worker of this worker
}

// request are the rows of all positions, each once.
type request struct {
	index  []int64 // by position
	unique []int64
	rows   []byte // by unique
	lookup sparse.Lookup[float32]
}

// set makes index the rows of the positions, with so many bytes each. It returns
// the memory of the index before.
func (r *request) set(index []int64, bytes int) (spare []int64) {
	spare = r.index
	r.index, r.unique = index, r.lookup.Set(index)
	r.rows = room(r.rows, len(r.unique)*bytes)
	return spare
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

func (r *request) wanted(variable int) exchange.Wanted {
	return exchange.Wanted{Variable: variable, Index: r.unique, Into: r.rows}
}

// aim makes the rows of the last feed those of the step. They are still to be
// got.
func (t *table) aim() exchange.Wanted {
	t.fed = t.now.set(t.fed, t.bytes)
	return t.now.wanted(t.Variable)
}

// tell notes that a step to come will be fed what was read last.
func (t *table) tell() { t.next, t.fed = t.fed, t.next }

// shift makes what tell noted the rows that are requested ahead.
func (t *table) shift() exchange.Wanted {
	t.next = t.ahead.set(t.next, t.bytes)
	return t.ahead.wanted(t.Variable)
}

// take makes the rows that were requested ahead those of the step.
func (t *table) take() { t.now, t.ahead = t.ahead, t.now }

// spread gives every position its row.
func (t *table) spread() {
	t.rows = room(t.rows, len(t.now.index)*t.bytes)
	t.now.spread(t.bytes, t.rows)
}

// read brings the indices of a checked feed in the order of positions.
func (t *table) read(r *replica.Replica, feed Feed, vws int) {
	places := r.Places(t.at)
	t.positions = 0
	for _, p := range places {
		t.positions += p.N
	}
	t.fed = room(t.fed, vws*t.positions)
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
			copy(t.fed[vw*t.positions+at:], all[vw*p.N:(vw+1)*p.N])
		}
		at += p.N
	}
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
