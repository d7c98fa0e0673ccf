package trainer

import (
	"context"

	"github.com/plx-run/plx/trainer/owner"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
	"gorgonia.org/tensor"
)

// table is a worker's view of an embedding: the rows of the present step.
type table interface {
	// pull gets the rows that a checked feed asks for, for so many shards, as
	// they are at the moment.
	pull(ctx context.Context, client *owner.Client, l *lane, feed Feed, shards int) error
	ahead
	// load copies the rows of a shard to the lane's inputs.
	load(l *lane, shard int)
	// contribute gives the gradients of a shard's rows to their owners. It
	// may run for several shards at once.
	contribute(client *owner.Client, l *lane, shard, leaf int)
}

func newTable(e *Embedding, at, variable int) table {
	if e.dtype() == tensor.Float64 {
		return &tableOf[float64]{at: at, variable: variable, width: e.Width}
	}
	return &tableOf[float32]{at: at, variable: variable, width: e.Width}
}

// tableOf has elements of type T. Rows are kept in the order of positions:
// shard by shard, in each of them lookup by lookup.
type tableOf[T wire.Float] struct {
	at, variable int // index among the embeddings, and among the variables
	width        int
	positions    int                // of one shard
	now, asked   fetched[T]         // rows of the step, and those that were wanted ahead
	next         []int64            // what Prefetch was told, by position
	rows         []T                // by position
	shards       []sparse.Lookup[T] // each one's own positions
}

// fetched are rows that somebody asks for.
type fetched[T wire.Float] struct {
	index  []int64 // by position
	lookup sparse.Lookup[T]
	unique []int64 // the rows, each once
	pulled []T
}

// set takes the rows at all positions.
func (f *fetched[T]) set(width int) {
	f.unique = f.lookup.Set(f.index)
	f.pulled = room(f.pulled, len(f.unique)*width)
}

func (t *tableOf[T]) pull(ctx context.Context, client *owner.Client, l *lane, feed Feed, shards int) error {
	t.aim(l, feed, shards)
	if err := client.Rows(ctx, t.variable, t.now.unique, wire.Bytes(t.now.pulled)); err != nil {
		return err
	}
	t.spread()
	return nil
}

// spread gives every position its row.
func (t *tableOf[T]) spread() {
	t.rows = room(t.rows, len(t.now.index)*t.width)
	t.now.lookup.Gather(t.now.pulled, t.width, t.rows)
}

// arrange brings the feed's indices in the order of positions.
func (t *tableOf[T]) arrange(l *lane, feed Feed, shards int, into []int64) []int64 {
	t.positions = 0
	for _, to := range l.of(t.at) {
		t.positions += len(to.index)
	}
	into = room(into, shards*t.positions)
	if len(t.shards) < shards {
		t.shards = make([]sparse.Lookup[T], shards)
	}
	at := 0
	for _, to := range l.of(t.at) {
		n := len(to.index)
		all := make([]int64, shards*n)
		if _, err := copyIndices(all, feed[to.name]); err != nil {
			panic(err) // the feed was checked
		}
		for shard := range shards {
			copy(into[shard*t.positions+at:], all[shard*n:(shard+1)*n])
		}
		at += n
	}
	return into
}

func (t *tableOf[T]) load(l *lane, shard int) {
	rows := t.rows[shard*t.positions*t.width:]
	for _, to := range l.of(t.at) {
		into, _ := rowMajor(to.rows) // an input of the program is
		n := copy(wire.Floats[T](into), rows)
		rows = rows[n:]
	}
}

func (t *tableOf[T]) contribute(client *owner.Client, l *lane, shard, leaf int) {
	own := &t.shards[shard]
	own.Set(t.now.index[shard*t.positions : (shard+1)*t.positions])
	sum := own.Combine(wire.Floats[T](l.tables[t.at]), t.width)
	client.ContributeRows(leaf, t.variable, sum.Index, wire.Bytes(sum.Values))
}

// of are the lane's lookups of a table.
func (l *lane) of(table int) []lookedUp {
	from, to := 0, len(l.lookups)
	for from < to && l.lookups[from].table < table {
		from++
	}
	for to > from && l.lookups[to-1].table > table {
		to--
	}
	return l.lookups[from:to]
}

// room returns n elements, in s where they fit.
func room[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}

// pull gets the rows of all tables.
func (r *Replica) pull(ctx context.Context, l *lane, feed Feed, shards int) error {
	for _, t := range r.tables {
		if err := t.pull(ctx, r.client, l, feed, shards); err != nil {
			return err
		}
	}
	return nil
}
