package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/client"
	"github.com/plx-run/plx/trainer/telemetry"
	"gorgonia.org/tensor"
)

// Replica is a worker's copy of a model. Its methods may be called by any
// goroutine; they run one after the other.
type Replica struct {
	job       *Job
	training  *training
	client    *client.Client
	worker    *worker
	variables variables
	saving    *saving
	telemetry *telemetry.Recorder
	from      int // number of steps made before this generation began

	mu      sync.Mutex
	step    int   // number of steps that the variables have seen
	late    int   // number of steps that this worker began and was too late for
	dropped int   // number of rows that this worker was fed for those steps
	ended   bool  // all workers ended together, so no further step is possible
	err     error // why no further step is possible; nil means that one is
}

// ErrDone is what Step returns after the last step: the one that
// --stop-at-step names, or the one at which the workers ended together. Main
// takes a program that returns it for a success.
var ErrDone = errors.New("training is done")

var errClosed = errors.New("the training has ended")

// Rows is the half-open range of a global batch's rows that this worker
// feeds.
func (r *Replica) Rows() (from, to int) { return r.training.feeds() }

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
	if r.err != nil {
		return Result{}, r.err
	}
	if err := ctx.Err(); err != nil {
		return Result{}, context.Cause(ctx)
	}
	result, err := r.worker.evaluate(ctx, r.step, feed)
	if err != nil {
		return Result{}, fmt.Errorf("evaluate: %w", err)
	}
	return result, nil
}

// Values returns a copy of every variable, by name: trained ones, states and
// whole embeddings, which are fetched from their shard holders. They are the same
// on every worker that took as many steps.
func (r *Replica) Values(ctx context.Context) (map[string]*tensor.Dense, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return nil, r.err
	}
	return r.variables.all(ctx)
}

// Carry makes state that the program keeps from one step to the next, such as
// what an LSTM's sequences ended with, part of checkpoints. Its first dimension
// are the rows that this worker feeds, see Rows: after a restart the worker that
// computes a row gets the state of that row. Every worker calls Carry with the
// same names, before its first step. It may change state whenever no Step is under
// way.
//
// If training resumes from a checkpoint, Carry fills state with what it was then.
// It does nothing without --ckpt-dir. With a --sync other than sync such state
// begins anew, because there is no moment that all workers share.
func (r *Replica) Carry(ctx context.Context, name string, state *tensor.Dense) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err, found := &r.saving.carriage, r.err, false
	switch {
	case err != nil:
	case r.step != r.from:
		err = fmt.Errorf("after step %d: call it before this run's first step", r.step)
	default:
		found, err = c.add(ctx, name, state)
	}
	if err != nil {
		return fmt.Errorf("carry %q: %w", name, err)
	}
	if !found {
		r.job.Logf(slog.LevelWarn, "checkpoint %s has no %q: it begins anew", c.checkpoint, name)
	}
	return nil
}

// compare compares the variables of all workers.
func (r *Replica) compare(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if mode := r.training.declared.Sync; !mode.InStep() {
		return fmt.Errorf("check parameters: with --sync %s workers do not have the same variables at the same time", mode)
	}
	return r.variables.compare(ctx, r.job.network.group, r.step)
}

// failure is the error that broke the replica, or nil.
func (r *Replica) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// conclude does what comes after a program that has ended well.
func (r *Replica) conclude(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.join(ctx)
	if err == nil && r.err == nil {
		err = r.saving.last(ctx, r.step)
	}
	if err != nil {
		return err
	}
	if r.dropped > 0 {
		r.job.Logf(cluster.VerboseLevel, "came too late for %s: %s dropped", count(r.late, "step"), count(r.dropped, "row"))
	}
	r.worker.tuner.Close()
	sent, received := 0, 0 // with shard holders, and with workers that this one serves as one
	for _, c := range r.client.Traffic() {
		sent, received = sent+int(c.Sent), received+int(c.Received)
	}
	r.job.Logf(slog.LevelDebug, "%s: sent %s, received %s", count(r.step, "step"), size(sent), size(received))
	if !r.job.config.Digest || !r.job.IsChief() {
		return nil
	}
	line, err := r.variables.digest(ctx, r.step)
	if err == nil {
		_, err = fmt.Fprintln(r.job.out, line)
	}
	return err
}

// close ends the replica's work: in good order if why is nil and no step has
// failed.
func (r *Replica) close(why error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	why, r.err = cmp.Or(why, r.err), cmp.Or(r.err, errClosed)
	written := r.telemetry.Close(r.step)
	if why != nil {
		r.client.Abort(why)
		return written
	}
	return errors.Join(r.client.Close(), written)
}
