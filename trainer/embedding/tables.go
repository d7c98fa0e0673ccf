package embedding

import (
	"context"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/exchange"
	"github.com/plx-run/plx/trainer/replica"
	"gorgonia.org/tensor"
)

// Feed holds, among others, the indices of every lookup by name.
type Feed = map[string]tensor.Tensor

// Table describes one table.
type Table struct {
	Name     string
	Variable int // its index among all variables
	Rows     int
	Width    int // elements of a row
	Dtype    tensor.Dtype
}

// Tables are all tables of a worker: the rows of the present step, and those of
// the next one if they are known.
type Tables struct {
	exchange  *exchange.Client
	inStep    bool // all workers take the same steps together
	tables    []*table
	told      bool // Prefetch named rows that were not requested yet
	requested bool // rows were requested ahead and are not awaited
}

// New returns the tables in the order of their indices. Without inStep nothing is
// requested ahead, because it is unknown which step is next.
func New(tables []Table, e *exchange.Client, inStep bool) *Tables {
	t := &Tables{exchange: e, inStep: inStep}
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
			if err := of.check(make([]int64, vws*p.N), from); err != nil {
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
		if err := t.exchange.Rows(ctx, w.Variable, w.Index, w.Into); err != nil {
			return err
		}
		of.spread()
	}
	return nil
}

// Load gives the lookups of a replica the rows of one virtual worker.
func (t *Tables) Load(r *replica.Replica, vw int) {
	for _, of := range t.tables {
		of.load(r, vw)
	}
}

// Gradient returns the gradient of one virtual worker, from the replica that has
// computed it: rows of a table and their sums. Different virtual workers may do
// this at the same time. The slices are valid until the next step.
func (t *Tables) Gradient(r *replica.Replica, table, vw int) (index []int64, sums []byte) {
	return t.tables[table].gradient(r, vw)
}

// Pulled are the rows of a table that the present step has, each once.
func (t *Tables) Pulled(table int) []int64 { return t.tables[table].now.unique }

// Len is the number of tables.
func (t *Tables) Len() int { return len(t.tables) }

// Variable is the index of a table among all variables.
func (t *Tables) Variable(table int) int { return t.tables[table].Variable }

// Prefetch notes what a step to come will be fed. RequestNext requests it.
func (t *Tables) Prefetch(r *replica.Replica, feed Feed, vws int) error {
	if len(t.tables) == 0 || !t.inStep {
		return nil
	}
	if err := t.Check(r, feed, vws); err != nil {
		return err
	}
	for _, of := range t.tables {
		of.read(r, feed, vws)
		of.tell()
	}
	t.told = true
	return nil
}

// Fetch gets the rows of a step that a checked feed asks for: those that were
// requested ahead, if they are the ones.
func (t *Tables) Fetch(ctx context.Context, r *replica.Replica, feed Feed, vws int) error {
	if len(t.tables) == 0 || !t.inStep {
		return t.Pull(ctx, r, feed, vws)
	}
	for _, of := range t.tables {
		of.read(r, feed, vws)
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
		return t.Pull(ctx, r, feed, vws) // the rows of a step are requested once
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
func (t *Tables) request(rows func(*table) exchange.Wanted) error {
	var wanted []exchange.Wanted
	for _, of := range t.tables {
		wanted = append(wanted, rows(of))
	}
	return t.exchange.Want(wanted)
}

func (t *Tables) every(is func(*table) bool) bool {
	return !slices.ContainsFunc(t.tables, func(of *table) bool { return !is(of) })
}
