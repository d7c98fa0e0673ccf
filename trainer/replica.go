package trainer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/plx-run/plx/trainer/ps"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Replica is a worker's copy of a model. Its methods may be called by any
// goroutine; they run one after the other.
type Replica struct {
	job       *Job
	build     Build
	optimizer Optimizer

	mu        sync.Mutex
	trained   *tape
	nodes     []gorgonia.Value // variables, shared by all executors
	values    [][]byte         // their memory
	gradients [][]byte
	declared  ps.Declaration
	evaluated map[int]executor // by rows
	owner     owner
	step      int
	err       error // why no further step is possible
}

// owner holds the authoritative variables: it takes gradients and writes new
// values to the replica's memory.
type owner interface {
	step(ctx context.Context, rate, loss float64) (float64, error)
	// close ends in good order, or hangs up and lets the others know why.
	close(why error) error
}

// maxEvaluated bounds how many graphs are kept for evaluations of different
// sizes.
const maxEvaluated = 4

// Step trains on this worker's rows of one batch: it computes the gradients,
// puts them together with those of all other workers, and returns once the
// variables are updated. Every worker must call it equally often.
//
// A feed that does not fit is refused and changes nothing. After any other
// error, also when ctx ends, the replica can no longer be used: the variables
// of the workers may differ.
func (r *Replica) Step(ctx context.Context, feed Feed) (Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return Result{}, r.err
	}
	if err := r.trained.feed(feed); err != nil {
		return Result{}, fmt.Errorf("step %d: %w", r.step, err)
	}
	result, err := r.trained.run()
	if err == nil {
		result.Loss, err = r.owner.step(ctx, r.optimizer.rate(r.step), result.Loss)
	}
	if err != nil {
		r.err = fmt.Errorf("step %d: %w", r.step, err)
		return Result{}, r.err
	}
	r.step++
	r.job.steps.Store(int64(r.step))
	return result, nil
}

// Steps is the number of steps that were taken.
func (r *Replica) Steps() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.step
}

// Evaluate computes loss and fetches without training and without the other
// workers. It takes any number of rows: the first dimension of the model's
// first input. A graph is built for each number of rows; the last few are
// kept.
func (r *Replica) Evaluate(ctx context.Context, feed Feed) (Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return Result{}, r.err
	}
	if err := ctx.Err(); err != nil {
		return Result{}, context.Cause(ctx)
	}
	rows, err := r.trained.model.rows(feed)
	if err != nil {
		return Result{}, fmt.Errorf("evaluate: %w", err)
	}
	if r.evaluated[rows] == nil {
		t, _, err := newTape(r.build, rows, r.nodes, false)
		if err != nil {
			return Result{}, fmt.Errorf("evaluate %d rows: %w", rows, err)
		}
		if len(r.evaluated) >= maxEvaluated {
			clear(r.evaluated)
		}
		r.evaluated[rows] = t
	}
	if err := r.evaluated[rows].feed(feed); err != nil {
		return Result{}, fmt.Errorf("evaluate: %w", err)
	}
	result, err := r.evaluated[rows].run()
	if err != nil {
		return Result{}, fmt.Errorf("evaluate: %w", err)
	}
	return result, nil
}

// Values returns a copy of every variable, by name. They are the same on
// every worker that took as many steps.
func (r *Replica) Values() (map[string]*tensor.Dense, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return nil, r.err
	}
	values := make(map[string]*tensor.Dense, len(r.nodes))
	for i, n := range r.trained.model.Variables {
		values[n.Name()] = tensorOf(r.declared.Variables[i], r.values[i])
	}
	return values, nil
}

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
	return r.owner.close(why)
}

// alone owns the variables in the same process.
type alone struct{ local *ps.Local }

func (a alone) step(ctx context.Context, rate, loss float64) (float64, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return a.local.Step(rate, loss)
}

func (alone) close(error) error { return nil }

// remote is the servers' side of a job.
type remote struct{ client *ps.Client }

func (r remote) step(ctx context.Context, rate, loss float64) (float64, error) {
	return r.client.Step(ctx, rate, loss)
}

func (r remote) close(why error) error {
	if why != nil {
		r.client.Abort(why)
		return nil
	}
	return r.client.Close()
}
