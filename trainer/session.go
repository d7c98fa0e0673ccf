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

// Session is one worker's part in the training of a model. [Job.Parallelize]
// returns it. Any goroutine may call its methods; they run one after the other.
type Session struct {
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
	unsaved bool  // a step was taken since it was last looked whether a checkpoint is due
	late    int   // number of steps that this worker began and was too late for
	dropped int   // number of rows that this worker was fed for those steps
	ended   bool  // all workers ended together, so no further step is possible
	err     error // why no further step is possible; nil means that one is
}

// ErrDone is what Step returns after the last step: the one that
// --stop-at-step names, or the one at which the workers ended together. Main
// takes a program that returns it for a success. Train ends its sequence instead.
var ErrDone = hooks.ErrDone

var errClosed = errors.New("the training has ended")

// Rows is the half-open range of a global batch's rows that this worker
// feeds.
func (s *Session) Rows() (from, to int) { return s.training.feeds() }

// Steps is the number of steps that the variables have seen. With
// --sync backup:B it jumps when this worker was late.
func (s *Session) Steps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.step
}

// Late is how often Step came too late, and how many rows it was fed in vain
// (--sync backup:B).
func (s *Session) Late() (steps, rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late, s.dropped
}

// Evaluate computes loss, metrics and fetches without training and without
// the other workers; only rows of embeddings are pulled. It takes any number
// of rows: as many as the model's first input has. A graph is built for each
// number of rows; the last few are kept.
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

// Parameters is the number of elements of all trained variables and tables. Running
// averages are not trained.
func (s *Session) Parameters() int {
	n := 0
	for _, v := range s.training.declared.Variables {
		if v.Update != optimizer.Average {
			n += v.NumElements()
		}
	}
	return n
}

// Values returns a copy of every variable, by name: trained ones, states and
// whole embeddings, which are fetched from their shard holders. They are the same
// on every worker that took as many steps.
func (s *Session) Values(ctx context.Context) (map[string]*tensor.Dense, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	return s.variables.all(ctx)
}

// failure is the error that broke the session, or nil.
func (s *Session) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// conclude does what comes after a program that has ended well.
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
	sent, received := 0, 0 // with shard holders, and with workers that this one serves as one
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

// finishAll takes part in the last steps of the others and in the last checkpoint.
func (s *Session) finishAll(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.join(ctx); err != nil || s.err != nil {
		return err
	}
	return s.saving.last(ctx, s.step)
}

// close ends the session: in good order if why is nil and no step has
// failed.
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
