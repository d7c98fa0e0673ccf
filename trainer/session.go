package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/client"
	"github.com/plx-run/plx/trainer/hooks"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/telemetry"
	"gorgonia.org/tensor"
)

// Session is one worker's handle on the training of a model. [Job.Parallelize]
// returns it. Any goroutine may call its methods; they run one at a time.
type Session struct {
	job       *Job
	training  *training
	client    *client.Client
	worker    *worker
	variables variables
	saving    *saving
	telemetry *telemetry.Recorder
	from      int // number of training steps in the checkpoint from which this process resumed; otherwise 0

	mu      sync.Mutex
	step    int   // number of training steps that the variables have gone through
	unsaved bool  // true if a step was taken or Save was called since saveDue last ran
	late    int   // number of steps whose gradients from this worker came too late
	dropped int   // number of rows that this worker fed in the steps for which it came too late
	ended   bool  // true once training has ended on all workers; Step then returns ErrDone
	err     error // first error of a step, which later calls return; nil means no error
}

// ErrDone is the error that Step returns when training has ended normally:
// after the step of --stop-at-step, or when all workers end together. If the
// program returns it, Main treats that as success. A loop over Train gets no
// such error; it just ends.
var ErrDone = hooks.ErrDone

var errClosed = errors.New("the training has ended")

// Rows returns the half-open range of rows in each global batch that this
// worker must feed.
func (s *Session) Rows() (from, to int) { return s.training.feeds() }

// Steps returns the number of training steps that the variables have gone
// through. With --sync backup:B, a step does not wait for the B slowest
// workers. Steps also counts the steps for which this worker came too late.
func (s *Session) Steps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.step
}

// Late returns the number of steps whose gradients from this worker came too
// late and were dropped, and the number of rows fed in those steps. Both are 0
// without --sync backup:B.
func (s *Session) Late() (steps, rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late, s.dropped
}

// Evaluate computes loss, metrics and fetches without training. It does not
// involve other workers, except to fetch rows of embedding tables from the
// tasks that store them.
//
// The feed may have another number of rows than in training. The model's first
// input in the feed determines this number. Evaluate builds one graph for each
// number of rows and caches the last few graphs.
func (s *Session) Evaluate(ctx context.Context, feed Feed) (Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return Result{}, s.err
	}
	if err := ctx.Err(); err != nil {
		return Result{}, context.Cause(ctx)
	}
	rows, result, err := s.worker.evaluate(ctx, s.step, feed)
	if err != nil {
		return Result{}, fmt.Errorf("evaluate: %w", err)
	}
	s.telemetry.Evaluated(s.step, rows, result.Loss, s.training.declared.Sum, result.Metrics)
	return result, nil
}

// Parameters returns the number of elements of all trained variables and
// tables. Running averages (Model.States) do not count.
func (s *Session) Parameters() int {
	n := 0
	for _, v := range s.training.declared.Variables {
		if v.Update != optimizer.Average {
			n += v.NumElements()
		}
	}
	return n
}

// Values returns a copy of every variable by name: trained ones, running
// averages and whole embedding tables. It fetches tables from the tasks that
// hold their rows. Workers that have taken the same number of steps get the
// same values.
func (s *Session) Values(ctx context.Context) (map[string]*tensor.Dense, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	return s.variables.all(ctx)
}

// failure returns the error that makes further steps impossible, or nil.
func (s *Session) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// conclude ends a training whose program returned without an error: it makes
// the last checkpoint, calls Hook.End and prints the digest of the variables.
func (s *Session) conclude(ctx context.Context) error {
	if err := s.finishAll(ctx); err != nil {
		return err
	}
	if err := s.end(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped > 0 {
		s.job.Logf(cluster.VerboseLevel, "came too late for %s: %s dropped", plural.Count(s.late, "step"), plural.Count(s.dropped, "row"))
	}
	s.worker.tuner.Close()
	sent, received := 0, 0 // number of bytes exchanged with the tasks that hold variables, and with workers whose variables this worker holds
	for _, c := range s.client.Traffic() {
		sent, received = sent+int(c.Sent), received+int(c.Received)
	}
	s.job.Logf(slog.LevelDebug, "%s: sent %s, received %s", plural.Count(s.step, "step"), size(sent), size(received))
	if !s.training.config.Digest || !s.job.IsChief() {
		return nil
	}
	line, err := s.variables.digest(ctx, s.step)
	if err == nil {
		_, err = fmt.Fprintln(s.job.out, line)
	}
	return err
}

// finishAll takes part in the steps that other workers still take, and in the
// last checkpoint.
func (s *Session) finishAll(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.join(ctx); err != nil || s.err != nil {
		return err
	}
	return s.saving.last(ctx, s.step)
}

// close ends the session. If why is nil and no step has failed, it says
// goodbye to the shard holders (the tasks that keep the variables). Otherwise
// it aborts the connections with the error.
func (s *Session) close(why error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	why, s.err = cmp.Or(why, s.err), cmp.Or(s.err, errClosed)
	written := s.telemetry.Close(s.step)
	if why != nil {
		s.client.Abort(why)
		return written
	}
	return errors.Join(s.client.Close(), written)
}
