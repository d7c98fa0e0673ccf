// Package embedding brings the rows of embedding tables that a worker's step
// needs to its replicas, and their gradients back.
//
//	t := embedding.New(tables, exchange, first, virtualWorkers, true)
//	err := t.Fetch(ctx, feed)                      // the rows of a step, each once
//	... t.RequestNext(): rows of the step after, while this one is computed
//	t.Load(replica, vw)                            // gives lookups their rows
//	index, sums := t.Gradient(replica, table, vw)  // duplicates added
//
// A prefetch request, see [Tables.Prefetch], names the rows of a step to come.
// They are requested while the step before it is computed.
//
// # What it refuses
//
// It holds no rows between steps: shard holders do. It updates none.
package embedding

import (
	"context"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/exchange/client"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/replica"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
	"gorgonia.org/tensor"
)

// Feed holds, among others, the indices of every lookup by name.
type Feed = map[string]tensor.Tensor

// Table describes one table.
type Table struct {
	Name     string
	Variable int // index of the table's variable in the declaration
	Rows     int
	Width    int // elements of a row
	Dtype    tensor.Dtype
}

// Tables are all tables of a worker: the rows of the present step, and those of
// the next one if they are known.
type Tables struct {
	exchange  *client.Rows
	first     *replica.Replica // knows the lookups of a training step
	vws       int              // number of virtual workers of this worker
	inStep    bool             // all workers take the same steps together
	tables    []*table
	told      bool // Prefetch has named rows that are not requested yet
	requested bool // rows were requested ahead, and no step has taken them yet
}

// New returns the tables in the order of their indices, for a worker that has so many
// virtual workers and replicas such as the first. Without inStep nothing is requested
// ahead, because it is unknown which step is next.
func New(tables []Table, e *client.Rows, first *replica.Replica, vws int, inStep bool) *Tables {
	t := &Tables{exchange: e, first: first, vws: vws, inStep: inStep}
	for i, of := range tables {
		t.tables = append(t.tables, &table{Table: of, at: i, bytes: of.Width * int(of.Dtype.Size())})
	}
	return t
}

// Check refuses indices that do not fit, for so many virtual workers.
func (t *Tables) Check(r *replica.Replica, feed Feed, vws int) error {
	for i, of := range t.tables {
		for _, p := range r.Places(i) {
			from := feed[p.Name]
			if from == nil {
				return fmt.Errorf("the indices of lookup %q are not fed", p.Name)
			}
			if err := of.check(make([]int64, vws*p.N), p.Least(vws), from); err != nil {
				return fmt.Errorf("lookup %q: %w", p.Name, err)
			}
		}
	}
	return nil
}

// Pull gets the rows that a checked feed asks for, as they are now.
func (t *Tables) Pull(ctx context.Context, r *replica.Replica, feed Feed, vws int) error {
	for _, of := range t.tables {
		of.read(r, feed, vws)
		w := of.aim()
		if err := t.exchange.Pull(ctx, w.Variable, w.Index, w.Into); err != nil {
			return err
		}
		of.spread()
	}
	return nil
}

// Load gives the lookups of a replica the rows of one virtual worker.
func (t *Tables) Load(r *replica.Replica, vw int) {
	for _, of := range t.tables {
		rows := of.rows[vw*of.positions*of.bytes:]
		for _, p := range r.Places(of.at) {
			rows = rows[copy(p.Rows, rows):]
		}
	}
}

// Gradient returns the gradient of one virtual worker, from the replica that has
// computed it: rows of a table and their sums. Different virtual workers may do
// this at the same time. The slices are valid until the next step.
func (t *Tables) Gradient(r *replica.Replica, table, vw int) (index []int64, sums []byte) {
	of := t.tables[table]
	index = of.now.index[vw*of.positions : (vw+1)*of.positions]
	return of.combiners[vw].combine(index, r.TableGradient(of.at), of.Width)
}

// Pulled are the rows of a table that the present step has, each once.
func (t *Tables) Pulled(table int) []int64 { return t.tables[table].now.unique }

// Len is the number of tables.
func (t *Tables) Len() int { return len(t.tables) }

// Variable is the index of a table among all variables.
func (t *Tables) Variable(table int) int { return t.tables[table].Variable }

// Prefetch notes what a step to come will be fed. RequestNext requests it.
func (t *Tables) Prefetch(feed Feed) error {
	if len(t.tables) == 0 || !t.inStep {
		return nil
	}
	if err := t.Check(t.first, feed, t.vws); err != nil {
		return err
	}
	for _, of := range t.tables {
		of.read(t.first, feed, t.vws)
		of.tell()
	}
	t.told = true
	return nil
}

// Fetch gets the rows of a step that a checked feed asks for: those that were
// requested ahead, if they are the ones.
func (t *Tables) Fetch(ctx context.Context, feed Feed) error {
	if len(t.tables) == 0 || !t.inStep {
		return t.Pull(ctx, t.first, feed, t.vws)
	}
	for _, of := range t.tables {
		of.read(t.first, feed, t.vws)
	}
	requested := t.requested
	if requested {
		t.requested = false
		if err := t.exchange.Await(ctx); err != nil {
			return err
		}
		if t.every(func(of *table) bool { return slices.Equal(of.ahead.index, of.fed) }) {
			for _, of := range t.tables {
				of.take()
				of.spread()
			}
			return nil
		}
	}
	if t.told && t.every(func(of *table) bool { return slices.Equal(of.next, of.fed) }) {
		t.told = false // Prefetch meant this step
	}
	if requested {
		return t.Pull(ctx, t.first, feed, t.vws) // the rows of a step are requested once
	}
	if err := t.request((*table).aim); err != nil {
		return err
	}
	if err := t.exchange.Await(ctx); err != nil {
		return err
	}
	for _, of := range t.tables {
		of.spread()
	}
	return nil
}

// RequestNext requests the rows of the next step if Prefetch named them. The
// step before it has begun.
func (t *Tables) RequestNext() error {
	if !t.told {
		return nil
	}
	t.told, t.requested = false, true
	return t.request((*table).shift)
}

// Ahead reports whether Prefetch named rows that were not requested yet, and
// whether rows were requested that no step has taken.
func (t *Tables) Ahead() (known, requested bool) { return t.told, t.requested }

// request requests what rows names of each table.
func (t *Tables) request(rows func(*table) message.RowRequest) error {
	var wanted []message.RowRequest
	for _, of := range t.tables {
		wanted = append(wanted, rows(of))
	}
	return t.exchange.Prefetch(wanted)
}

func (t *Tables) every(is func(*table) bool) bool {
	return !slices.ContainsFunc(t.tables, func(of *table) bool { return !is(of) })
}

// table is one table. A position is one index of one lookup of one virtual
// worker: positions are in the order of virtual workers, and in each of them in
// the order of lookups.
type table struct {
	Table
	at        int        // index among the tables
	bytes     int        // bytes of a row
	positions int        // number of positions of one virtual worker
	now       request    // the rows of the present step
	ahead     request    // the rows that were requested ahead
	fed       []int64    // by position: the row that the last feed asks for
	next      []int64    // by position: the row that Prefetch named
	rows      []byte     // by position: the bytes of its row in the present step
	combiners []combiner // by virtual worker of this worker
}

// request are the rows of all positions, each once.
type request struct {
	index  []int64 // by position: the row
	unique []int64 // the rows, each once, ascending
	rows   []byte  // received values of the rows in unique, in that order; filled by the shard holders' replies
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

func (r *request) wanted(variable int) message.RowRequest {
	return message.RowRequest{Variable: variable, Index: r.unique, Into: r.rows}
}

// aim makes the rows of the last feed those of the step. They are still to be
// got.
func (t *table) aim() message.RowRequest {
	t.fed = t.now.set(t.fed, t.bytes)
	return t.now.wanted(t.Variable)
}

// tell notes that a step to come will be fed what was read last.
func (t *table) tell() { t.next, t.fed = t.fed, t.next }

// shift makes what tell noted the rows that are requested ahead.
func (t *table) shift() message.RowRequest {
	t.next = t.ahead.set(t.next, t.bytes)
	return t.ahead.wanted(t.Variable)
}

// take makes the rows that were requested ahead those of the step.
func (t *table) take() { t.now, t.ahead = t.ahead, t.now }

// spread gives every position its row.
func (t *table) spread() {
	t.rows = room(t.rows, len(t.now.index)*t.bytes)
	// The rows are copied as words of 4 bytes, whatever their type.
	t.now.lookup.Gather(wire.Floats[float32](t.now.rows), t.bytes/4, wire.Floats[float32](t.rows))
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
		if _, err := copyIndices(all, p.Least(vws), feed[p.Name]); err != nil {
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

// check reads what a feed gives for a lookup: indices of rows, or the fewest that may
// stand for all of them.
func (t *table) check(into []int64, fewest int, from tensor.Tensor) error {
	n, err := copyIndices(into, fewest, from)
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

// copyIndices returns how many indices there are. It copies them if they fit, again and
// again if they are the fewest.
func copyIndices(into []int64, fewest int, from tensor.Tensor) (int, error) {
	if from.RequiresIterator() || from.DataOrder().IsColMajor() {
		return 0, fmt.Errorf("the indices do not lie in row-major order")
	}
	switch data := from.Data().(type) {
	case []int64:
		return narrow(into, fewest, data), nil
	case []int32:
		return narrow(into, fewest, data), nil
	case []int:
		return narrow(into, fewest, data), nil
	}
	return 0, fmt.Errorf("type %v: want int, int32 or int64", from.Dtype())
}

func narrow[T int | int32 | int64](into []int64, fewest int, from []T) int {
	if len(from) != len(into) && len(from) != fewest {
		return len(from)
	}
	for i := range into {
		into[i] = int64(from[i%len(from)])
	}
	return len(into)
}

// room returns n elements, in s if they fit.
func room[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}
