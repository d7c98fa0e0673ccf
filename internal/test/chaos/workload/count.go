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

// A counting job makes every gradient identifiable. A push is the gradient of
// one worker in one step: it is 1 in the push's own row of a variable and 0 in
// all other rows. The loss is a sum and the learning rate is 1. Therefore each
// row of a variable ends as minus the number of times that its push was
// applied. The counting variables are two dense ones and an embedding table,
// which are on different shard holders (tasks that hold variables).
//
// Each worker records the outcomes of its steps in its ledger.

// names of the counting variables
const (
	left  = "left"
	right = "right"
	table = "table"
)

// pushes builds the model: hot·left + hot·right + table[index] weight. The
// inputs select the push's row. In one row of the batch, "hot" has a 1 in the
// column with the number of the push's row. "index" is this number, and
// "weight" is 1.
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

// counter is a worker of a counting job.
type counter struct {
	*settings
	job     *trainer.Job
	session *trainer.Session
	book    *ledger.Book
	folder  string // folder for the ledgers and for the counts of the variables
}

// shardRows is the number of batch rows per virtual worker.
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

// linger waits two seconds before the worker exits. In this time the chief can
// fetch the updates of the other workers' last steps. It cannot get them from
// the parameter servers after all other workers have exited.
func (c *counter) linger(ctx context.Context) {
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
	}
}

func (c *counter) push(step int) ledger.Push {
	return ledger.Push{Generation: c.job.Generation(), Worker: c.job.WorkerID(), Step: step}
}

// loop makes all steps. It records each step in the ledger before the step
// begins and when its outcome is known. The last worker takes 1.5 times as
// long for a step as the others.
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
		if errors.Is(err, trainer.ErrDone) { // ErrDone means that the other workers have finished all steps
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

// feed returns the input with which a push counts the given number of times.
// Only the first of this worker's batch rows contributes to the gradient.
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

// applied returns the counts of the variables as this worker sees them. The
// counts of the dense variables are those after the worker's last step. The
// counts of the table come from the shard holders.
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

// seen returns, indexed by worker, the number of pushes of this generation
// that both dense variables contain. The worker will compute its next gradient
// from these values.
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

// conclude writes the final counts; only the chief calls it. If c.quiet is
// greater than 0, conclude first makes steps whose gradient is zero, until the
// counts have not changed for c.quiet of these steps. By then all other
// workers have ended.
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

// nobodys is the minimum duration of a step whose gradient is zero.
const nobodys = 30 * time.Millisecond
