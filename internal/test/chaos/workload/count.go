package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/plx-run/plx/internal/test/chaos/ledger"
	"github.com/plx-run/plx/trainer"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Counting is training in which every gradient can be told from every other:
// that of a push is 1 in the push's own row and 0 elsewhere, the loss is a sum
// and the rate 1, so that a variable ends as minus the number of times that
// each push was applied to it. Two dense variables and a table of rows count,
// as they are on different shard holders.
//
// What a worker was told of its steps is in its ledger.

// counted are the variables' names.
const (
	left  = "left"
	right = "right"
	table = "table"
)

// pushes is the model: hot·left + hot·right + table[index] weight. It is fed
// "hot", rows of which one has a 1 where the push counts, "index", that row, and
// "weight", 1 there.
func pushes(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	rows := &trainer.Embedding{Name: table, Rows: ledger.Rows, Width: 1, Dtype: tensor.Float32}
	found, err := rows.Lookup(g, "index", batch)
	if err != nil {
		return trainer.Model{}, err
	}
	matrix := func(name string, rows, columns int) *gorgonia.Node {
		return gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName(name), gorgonia.WithShape(rows, columns), gorgonia.WithInit(trainer.Zeros()))
	}
	hot := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("hot"), gorgonia.WithShape(batch, ledger.Rows))
	weight := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("weight"), gorgonia.WithShape(batch, 1))
	l, r := matrix(left, ledger.Rows, 1), matrix(right, ledger.Rows, 1)
	loss, err := gorgonia.HadamardProd(found, weight)
	for _, variable := range []*gorgonia.Node{l, r} {
		var product *gorgonia.Node
		if err == nil {
			product, err = gorgonia.Mul(hot, variable)
		}
		if err == nil {
			loss, err = gorgonia.Add(loss, product)
		}
	}
	if err == nil {
		loss, err = gorgonia.Sum(loss)
	}
	return trainer.Model{Inputs: gorgonia.Nodes{hot, weight}, Variables: gorgonia.Nodes{l, r},
		Embeddings: []*trainer.Embedding{rows}, Loss: loss, LossKind: trainer.Sum}, err
}

// counter is a worker that counts.
type counter struct {
	*settings
	job     *trainer.Job
	session *trainer.Session
	book    *ledger.Book
	folder  string // for the book and for the counts of the variables
}

// shardRows are the rows that each virtual worker takes of a batch.
const shardRows = 2

func (s *settings) count(ctx context.Context, job *trainer.Job) (err error) {
	c := &counter{settings: s, job: job, folder: filepath.Join(os.Getenv("PLX_CHECKPOINTS"), s.ledger)}
	if s.steps > ledger.Steps {
		return fmt.Errorf("--steps %d: at most %d can be counted", s.steps, ledger.Steps)
	}
	c.session, err = job.Parallelize(ctx, pushes, trainer.SGD(1), trainer.Config{GlobalBatch: shardRows * job.NumShards(),
		PeerTimeout: s.silence, StartTimeout: 30 * time.Second})
	if err != nil {
		return err
	}
	if c.book, err = ledger.Create(c.folder, job.Generation(), job.WorkerID()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.book.Close()) }()
	joined := ledger.Entry{Push: c.push(c.session.Steps()), Kind: ledger.Joined, Workers: job.NumWorkers()}
	if err := c.book.Note(joined); err != nil {
		return err
	}
	if err := c.loop(ctx); err != nil {
		return err
	}
	if job.IsChief() {
		return c.conclude(ctx)
	}
	if c.quiet == 0 {
		c.linger(ctx)
	}
	return nil
}

// linger stays until the chief, which is in step, has what others made last: it
// does not get that from servers which all others have left.
func (c *counter) linger(ctx context.Context) {
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
	}
}

func (c *counter) push(step int) ledger.Push {
	return ledger.Push{Generation: c.job.Generation(), Worker: c.job.WorkerID(), Step: step}
}

// loop makes all steps, and notes each before it is begun and when it is told
// what came of it. The last worker takes half as long again as the others.
func (c *counter) loop(ctx context.Context) error {
	took := c.pace
	if rank := c.job.WorkerID(); rank > 0 && rank == c.job.NumWorkers()-1 {
		took += took / 2
	}
	pace := time.NewTicker(took)
	defer pace.Stop()
	for step := c.session.Steps(); step < c.settings.steps; step = c.session.Steps() {
		seen, err := c.seen(ctx)
		if err != nil {
			return err
		}
		if err := c.book.Note(ledger.Entry{Push: c.push(step), Kind: ledger.Begun, Seen: seen}); err != nil {
			return err
		}
		result, err := c.session.Step(ctx, c.feed(step, 1))
		if errors.Is(err, trainer.ErrDone) { // the others have left
			result.Late = true
		} else if err != nil {
			return err
		}
		if told := c.told(step, result); told != nil || err != nil {
			return errors.Join(told, err)
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (c *counter) told(step int, result trainer.Result) error {
	kind := ledger.Made
	if result.Late {
		kind = ledger.Late
	} else if c.job.IsChief() {
		fmt.Printf("generation %d | step %d | loss %.4f\n", c.job.Generation(), step, result.Loss)
	}
	return c.book.Note(ledger.Entry{Push: c.push(step), Kind: kind})
}

// feed is a push that counts so often. Only one of this worker's rows has it.
func (c *counter) feed(step int, times float32) trainer.Feed {
	from, to := c.session.Rows()
	row := c.push(min(step, ledger.Steps-1)).Row()
	index, hot, weight := make([]int64, to-from), make([]float32, (to-from)*ledger.Rows), make([]float32, to-from)
	for i := range index {
		index[i] = int64(row)
	}
	hot[row], weight[0] = times, times
	dense := func(columns int, values []float32) *tensor.Dense {
		return tensor.New(tensor.WithShape(to-from, columns), tensor.WithBacking(values))
	}
	return trainer.Feed{"index": tensor.New(tensor.WithShape(len(index)), tensor.WithBacking(index)),
		"hot": dense(ledger.Rows, hot), "weight": dense(1, weight)}
}

// applied is what the variables have counted, as far as this worker knows: of the
// dense ones what its last step brought, of the table what its shard holders have.
func (c *counter) applied(ctx context.Context) (ledger.Applied, error) {
	values, err := c.session.Values(ctx)
	if err != nil {
		return nil, err
	}
	all := ledger.Applied{}
	for name, v := range values {
		for _, x := range v.Data().([]float32) {
			all[name] = append(all[name], -float64(x))
		}
	}
	return all, nil
}

// seen counts, by worker, the pushes of this generation that both dense variables
// have: those that the next step is computed from.
func (c *counter) seen(ctx context.Context) ([]int, error) {
	all, err := c.applied(ctx)
	if err != nil {
		return nil, err
	}
	seen := make([]int, c.job.NumWorkers())
	for worker := range seen {
		for step := range ledger.Steps {
			row := ledger.Push{Generation: c.job.Generation(), Worker: worker, Step: step}.Row()
			if all[left][row] > 0 && all[right][row] > 0 {
				seen[worker]++
			}
		}
	}
	return seen, nil
}

// conclude is the chief's last word: what was applied, once nothing is added any
// more for so many steps that are nobody's. Workers that are in step with it
// have ended then; it takes none where it is told to take 0.
func (c *counter) conclude(ctx context.Context) error {
	last, err := c.applied(ctx)
	for same := 0; err == nil && same < c.quiet; same++ {
		if _, err = c.session.Step(ctx, c.feed(c.settings.steps, 0)); err != nil {
			return err
		}
		time.Sleep(nobodys)
		var now ledger.Applied
		now, err = c.applied(ctx)
		if !maps.EqualFunc(last, now, slices.Equal) {
			last, same = now, -1
		}
	}
	if err != nil {
		return err
	}
	return last.Write(c.folder)
}

// nobodys is how long a step takes that is nobody's.
const nobodys = 30 * time.Millisecond
