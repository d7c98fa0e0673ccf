package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/plx-run/plx/trainer/owner"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Replica is a worker's copy of a model. Its methods may be called by any
// goroutine; they run one after the other.
type Replica struct {
	job       *Job
	build     Build
	optimizer Optimizer
	settings  settings
	rows      int // of one virtual worker
	lo, hi    int // virtual workers of this worker

	mu        sync.Mutex
	lanes     []*lane
	kept      []gorgonia.Value // variables and states, shared by all lanes
	memory    [][]byte         // kept's
	tables    []table
	ahead     prefetch
	declared  owner.Declaration
	evaluated map[int]*lane // by rows
	client    *owner.Client
	hooks     hooks
	tuner     *tuner // nil: rows stay where they are
	saver     *saver // the chief's, nil: no checkpoints
	carried   []carried
	restored  bool     // nothing more is wanted of the checkpoint
	cut       []uint64 // how many steps of each group it holds, nil: it is of workers that wait for each other
	standing  standing
	step      int
	late      int   // steps that were begun and came too late
	dropped   int   // rows that were fed in vain
	ended     bool  // no further step: all workers ended together
	err       error // why no further step is possible
}

// ErrDone is what Step returns after the last step: the one that
// --stop-at-step names, or the one at which the workers ended together. Main
// takes a program that returns it for a success.
var ErrDone = errors.New("training is done")

// maxEvaluated bounds how many graphs are kept for evaluations of different
// sizes.
const maxEvaluated = 4

// Rows is the half-open range of a global batch's rows that this worker
// feeds.
func (r *Replica) Rows() (from, to int) { return r.lo * r.rows, r.hi * r.rows }

// Steps is the number of steps that the variables have seen. With
// --sync backup:B it jumps when this worker was late.
func (r *Replica) Steps() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.step
}

// Late is how often Step came too late, and how many rows it was fed in vain
// (--sync backup:B).
func (r *Replica) Late() (steps, rows int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late, r.dropped
}

// Evaluate computes loss, metrics and fetches without training and without
// the other workers; only rows of embeddings are pulled. It takes any number
// of rows: as many as the model's first input has. A graph is built for each
// number of rows; the last few are kept.
func (r *Replica) Evaluate(ctx context.Context, feed Feed) (Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return Result{}, context.Cause(ctx)
	}
	result, err := r.evaluate(ctx, feed)
	if err != nil {
		return Result{}, fmt.Errorf("evaluate: %w", err)
	}
	return result, nil
}

func (r *Replica) evaluate(ctx context.Context, feed Feed) (Result, error) {
	rows, err := r.lanes[0].model.rows(feed, r.rows)
	if err != nil {
		return Result{}, err
	}
	l := r.evaluated[rows]
	if l == nil {
		if l, _, err = newLane(r.build, rows, r.kept, false); err != nil {
			return Result{}, fmt.Errorf("%d rows: %w", rows, err)
		}
		if len(r.evaluated) >= maxEvaluated {
			clear(r.evaluated)
		}
		r.evaluated[rows] = l
	}
	if err := l.check(feed, 1); err != nil {
		return Result{}, err
	}
	if err := r.pull(ctx, l, feed, 1); err != nil {
		return Result{}, err
	}
	if err := l.load(feed, 0, r.tables); err != nil {
		return Result{}, err
	}
	sums, err := l.run(r.call(0, false), nil, nil)
	if err != nil {
		return Result{}, err
	}
	result := Result{Loss: sums[0], Metrics: l.named(sums[1:]), Fetches: map[string][]gorgonia.Value{}}
	return result, l.fetched(false, result.Fetches)
}

// Values returns a copy of every variable, by name: trained ones, states and
// whole embeddings, which are fetched from their owners. They are the same on
// every worker that took as many steps.
func (r *Replica) Values(ctx context.Context) (map[string]*tensor.Dense, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.usable(); err != nil {
		return nil, err
	}
	values := make(map[string]*tensor.Dense, len(r.declared.Variables))
	for i, v := range r.declared.Variables {
		memory, err := r.value(ctx, i)
		if err != nil {
			return nil, fmt.Errorf("variable %q: %w", v.Name, err)
		}
		values[v.Name] = tensorOf(v, memory)
	}
	return values, nil
}

// value returns the memory of a variable, fetched where this worker does not
// hold it.
func (r *Replica) value(ctx context.Context, variable int) ([]byte, error) {
	if variable < len(r.memory) {
		return r.memory[variable], nil
	}
	v := r.declared.Variables[variable]
	n, err := v.Elements()
	if err != nil {
		return nil, err
	}
	memory := make([]byte, n*v.Dtype.Size())
	return memory, r.client.Whole(ctx, variable, memory)
}

// traffic is the bytes of this worker's connections with owners, and with
// workers that it serves as one.
func (r *Replica) traffic() (sent, received int) {
	for _, c := range r.client.Traffic() {
		sent, received = sent+int(c.Sent), received+int(c.Received)
	}
	return sent, received
}

// usable says why the replica cannot be used any more. It needs r.mu.
func (r *Replica) usable() error { return cmp.Or(r.job.usable(), r.err) }

var errClosed = errors.New("the training has ended")

// failure is the error that broke the replica, or nil.
func (r *Replica) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// close ends the replica's work: in good order where why is nil and no step
// has failed.
func (r *Replica) close(why error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if why == nil {
		why = r.err
	}
	if r.err == nil {
		r.err = errClosed
	}
	hooks := r.hooks.close()
	if why != nil {
		r.client.Abort(why)
		return hooks
	}
	return errors.Join(r.client.Close(), hooks)
}
