// Package embedding fetches the rows of embedding tables that a worker needs
// in a step. It copies the rows into the worker's replicas (copies of the
// model graph) and collects the gradients of the rows.
//
//	t := embedding.New(tables, exchange, first, virtualWorkers, true)
//	err := t.Fetch(ctx, feed)                      // the rows of a step, without duplicates
//	... t.RequestNext(): rows of the next step, while this step is computed
//	t.Load(replica, vw)                            // copies the rows into a replica's lookups
//	index, sums := t.Gradient(replica, table, vw)  // gradients of equal rows are added
//
// [Tables.Prefetch] names the rows of the next step in advance. RequestNext
// then requests them while the current step is computed.
//
// # What it does not do
//
// The package keeps no rows from one step to the next, and does not update
// rows. The shard holders (tasks that store the tables) do both.
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

// Feed contains the inputs of a step by name, among them the row indices of
// each embedding lookup.
type Feed = map[string]tensor.Tensor

// Table describes one embedding table.
type Table struct {
	Name     string
	Variable int // index of the table's variable in the declaration
	Rows     int
	Width    int // number of elements of a row
	Dtype    tensor.Dtype
}

// Tables contains all embedding tables of a worker: the rows of the current
// step, and those of the next step if they were requested.
type Tables struct {
	exchange   *client.Rows
	first      *replica.Replica // one replica of the model, from which lookups are read; all replicas have the same lookups
	vws        int              // number of virtual workers (fixed parts of each global batch) that this worker computes
	inStep     bool             // true if all workers do the same step at the same time; if false, rows are not requested in advance
	tables     []*table
	prefetched bool // true if Prefetch has named rows that RequestNext has not requested yet
	requested  bool // true if RequestNext has requested rows that no step has used yet
}

// New returns the tables of a worker. vws is the worker's number of virtual
// workers (parts of a batch), and first is its first replica. inStep says that
// all workers do the same step at the same time. Otherwise the number of the
// next step is unknown, so rows are not requested in advance.
func New(tables []Table, e *client.Rows, first *replica.Replica, vws int, inStep bool) *Tables {
	t := &Tables{exchange: e, first: first, vws: vws, inStep: inStep}
	for i, of := range tables {
		t.tables = append(t.tables, &table{Table: of, at: i, bytes: of.Width * int(of.Dtype.Size())})
	}
	return t
}

// Check returns an error unless the feed has valid row indices for every
// lookup of a number vws of virtual workers.
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

// Pull requests the current values of the rows that a feed uses, and waits for
// them. Check must have accepted the feed.
func (t *Tables) Pull(ctx context.Context, r *replica.Replica, feed Feed, vws int) error {
	for _, of := range t.tables {
		of.read(r, feed, vws)
		w := of.requestCurrent()
		if err := t.exchange.Pull(ctx, w.Variable, w.Index, w.Into); err != nil {
			return err
		}
		of.fillPositions()
	}
	return nil
}

// Load copies the rows of one virtual worker into the lookups of a replica.
func (t *Tables) Load(r *replica.Replica, vw int) {
	for _, of := range t.tables {
		rows := of.rows[vw*of.positions*of.bytes:]
		for _, p := range r.Places(of.at) {
			rows = rows[copy(p.Rows, rows):]
		}
	}
}

// Gradient returns the gradient of one table for one virtual worker: the rows,
// and for each row the sum of its gradients. r is the replica that has
// computed the virtual worker. Gradient may be called for different virtual
// workers at the same time. The result is valid until the next step.
func (t *Tables) Gradient(r *replica.Replica, table, vw int) (index []int64, sums []byte) {
	of := t.tables[table]
	index = of.now.index[vw*of.positions : (vw+1)*of.positions]
	return of.combiners[vw].combine(index, r.TableGradient(of.at), of.Width)
}

// Pulled returns the rows of a table that the current step uses, without
// duplicates.
func (t *Tables) Pulled(table int) []int64 { return t.tables[table].now.unique }

// Len returns the number of tables.
func (t *Tables) Len() int { return len(t.tables) }

// Variable returns the index of the table's variable in the list of all
// variables.
func (t *Tables) Variable(table int) int { return t.tables[table].Variable }

// Prefetch records the row indices in the feed of the next step, so that
// RequestNext can request these rows.
func (t *Tables) Prefetch(feed Feed) error {
	if len(t.tables) == 0 || !t.inStep {
		return nil
	}
	if err := t.Check(t.first, feed, t.vws); err != nil {
		return err
	}
	for _, of := range t.tables {
		of.read(t.first, feed, t.vws)
		of.recordNext()
	}
	t.prefetched = true
	return nil
}

// Fetch fetches the rows of a step. If RequestNext has requested exactly these
// rows, Fetch only waits for them. Check must have accepted the feed.
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
		if t.every(func(of *table) bool { return slices.Equal(of.ahead.index, of.feedIndex) }) {
			for _, of := range t.tables {
				of.useAhead()
				of.fillPositions()
			}
			return nil
		}
	}
	if t.prefetched && t.every(func(of *table) bool { return slices.Equal(of.next, of.feedIndex) }) {
		t.prefetched = false // Prefetch has recorded the rows of this step, which this call of Fetch requests
	}
	if requested {
		// RequestNext has requested rows for this step in advance, but not the
		// rows of this feed. The step may not request in advance again, so
		// Pull requests the rows of the feed now.
		return t.Pull(ctx, t.first, feed, t.vws)
	}
	if err := t.request((*table).requestCurrent); err != nil {
		return err
	}
	if err := t.exchange.Await(ctx); err != nil {
		return err
	}
	for _, of := range t.tables {
		of.fillPositions()
	}
	return nil
}

// RequestNext requests the rows that Prefetch has recorded for the next step,
// if any. The current step must have begun.
func (t *Tables) RequestNext() error {
	if !t.prefetched {
		return nil
	}
	t.prefetched, t.requested = false, true
	return t.request((*table).requestNext)
}

// Ahead returns known and requested. known says whether Prefetch has recorded
// rows that are not requested yet. requested says whether rows were requested
// that no step has used yet.
func (t *Tables) Ahead() (known, requested bool) { return t.prefetched, t.requested }

// request sends the shard holders one request for the rows of all tables. The
// function rows returns the request for one table.
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

// table is the state of one embedding table. A position is one index in one
// lookup of one virtual worker. Positions are numbered by virtual worker, and
// within a virtual worker by lookup.
type table struct {
	Table
	at        int        // index of the table in Tables.tables
	bytes     int        // number of bytes of a row
	positions int        // number of positions (indices in a lookup) per virtual worker
	now       request    // the rows of the current step
	ahead     request    // the rows that were requested in advance
	feedIndex []int64    // row that the last feed names, for each position (index in a lookup)
	next      []int64    // row in the feed that Prefetch has recorded, for each position (index in a lookup)
	rows      []byte     // values of the current step's row for each position (index in a lookup), one after the other
	combiners []combiner // indexed by virtual worker: adds the gradients of positions that use the same row
}

// request contains the table rows that a step uses at all positions of its
// lookups, without duplicates.
type request struct {
	index  []int64 // row that each position (index in a lookup) uses
	unique []int64 // the rows, ascending, without duplicates
	rows   []byte  // values of the rows in unique, in the same order, as received from the shard holders
	lookup sparse.Lookup[float32]
}

// set replaces index, which contains the rows of all positions, and computes
// the distinct rows. bytes is the number of bytes per row. set returns the
// previous index slice, so that the caller can reuse its memory.
func (r *request) set(index []int64, bytes int) (spare []int64) {
	spare = r.index
	r.index, r.unique = index, r.lookup.Set(index)
	r.rows = room(r.rows, len(r.unique)*bytes)
	return spare
}

// combiner adds the gradients of positions that use the same row.
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

// requestCurrent makes the rows of the last feed the rows of the current step, and
// returns the request for them.
func (t *table) requestCurrent() message.RowRequest {
	t.feedIndex = t.now.set(t.feedIndex, t.bytes)
	return t.now.wanted(t.Variable)
}

// recordNext records the feed that was read last as the feed of the next step.
func (t *table) recordNext() { t.next, t.feedIndex = t.feedIndex, t.next }

// requestNext returns the request for the rows that recordNext has recorded.
func (t *table) requestNext() message.RowRequest {
	t.next = t.ahead.set(t.next, t.bytes)
	return t.ahead.wanted(t.Variable)
}

// useAhead makes the rows that were requested in advance the rows of the current
// step.
func (t *table) useAhead() { t.now, t.ahead = t.ahead, t.now }

// fillPositions copies to each position (index in a lookup) the values of the
// row that the position uses.
func (t *table) fillPositions() {
	t.rows = room(t.rows, len(t.now.index)*t.bytes)
	// The rows are copied as words of 4 bytes, whatever their element type is.
	t.now.lookup.Gather(wire.Floats[float32](t.now.rows), t.bytes/4, wire.Floats[float32](t.rows))
}

// read copies the row indices in a feed to t.feedIndex, sorted by position.
// Check must have accepted the feed.
func (t *table) read(r *replica.Replica, feed Feed, vws int) {
	places := r.Places(t.at)
	t.positions = 0
	for _, p := range places {
		t.positions += p.N
	}
	t.feedIndex = room(t.feedIndex, vws*t.positions)
	for len(t.combiners) < vws {
		t.combiners = append(t.combiners, t.combiner())
	}
	at := 0
	for _, p := range places {
		all := make([]int64, vws*p.N)
		if _, err := copyIndices(all, p.Least(vws), feed[p.Name]); err != nil {
			panic(err) // impossible, because Check has accepted the feed
		}
		for vw := range vws {
			copy(t.feedIndex[vw*t.positions+at:], all[vw*p.N:(vw+1)*p.N])
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

// check copies the row indices of one lookup from the tensor from into the
// slice into, and checks them. If the tensor has exactly `fewest` indices,
// check repeats them until the slice is full.
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

// copyIndices copies row indices from the tensor from into the slice into and
// returns their number. If the tensor has exactly `fewest` indices, they are
// repeated until the slice is full. If the tensor has any number but this or
// the length of the slice, nothing is copied.
func copyIndices(into []int64, fewest int, from tensor.Tensor) (int, error) {
	if from.RequiresIterator() || from.DataOrder().IsColMajor() {
		return 0, fmt.Errorf("the indices are not in row-major order")
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

// room returns a slice of n elements. It reuses the memory of s if that is
// large enough.
func room[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}
