// Workload is the training program of the fault grid (the tests of package
// chaos). Its model has all kinds of state that must be restored after a
// fault: an embedding table, dense weights sharded over all workers, dropout,
// momentum, a decaying learning rate, and recurrent state that each row of the
// batch carries from step to step. A step takes a few milliseconds, but never
// less than --pace, so that a fault hits the intended step.
//
// The chief prints every step.
//
// With --ledger, the program trains another model, in which the number of
// times that each gradient was applied can be counted. This model is for
// workers that do not wait for each other, because their weights are not
// reproducible.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/plx-run/plx/trainer"
)

// settings are the program's flags.
type settings struct {
	steps   int           // number of steps to make
	batch   int           // number of rows of a batch, for all workers together
	clip    float64       // norm to which gradients are clipped; 0 means no clipping
	pace    time.Duration // minimum duration of a step
	until   string        // path of a file; once it exists, steps have no minimum duration any more; "" means that pace always applies
	silence time.Duration // time without a message after which a task declares another task failed
	ledger  string        // folder for the ledgers, below the job's checkpoints; "" means that gradients are not counted
	quiet   int           // only with ledger: number of steps without a change of the counts after which the chief takes the counts as final
}

func main() {
	var s settings
	flag.IntVar(&s.steps, "steps", 80, "`steps` to take")
	flag.IntVar(&s.batch, "batch", 16, "`rows` of a step, over all workers together")
	flag.Float64Var(&s.clip, "clip", 1, "`norm` to which gradients are clipped; 0: they are not")
	flag.DurationVar(&s.pace, "pace", 30*time.Millisecond, "`time` that a step takes at least")
	flag.StringVar(&s.until, "pace-until", "", "keep to --pace only until there is this `file`: a test is done with what it does while steps are made")
	flag.DurationVar(&s.silence, "peer-timeout", 3*time.Second, "`time` for which another task may be silent")
	flag.StringVar(&s.ledger, "ledger", "", "count gradients, and note what workers are told in this `folder` of the job's checkpoints")
	flag.IntVar(&s.quiet, "quiet", 60, "with --ledger: `steps` of nobody's, without a change, after which nothing more is to come")
	trainer.Main(func(ctx context.Context, job *trainer.Job) error {
		if s.ledger != "" {
			return s.count(ctx, job)
		}
		return s.train(ctx, job)
	})
}

func (s *settings) train(ctx context.Context, job *trainer.Job) error {
	model := model{seed: job.Seed()}
	falling := trainer.Momentum(0.2, 0.9).WithSchedule(func(step int) float64 { return 0.2 / (1 + float64(step)/20) })
	session, err := job.Parallelize(ctx, model.build, falling, trainer.Config{GlobalBatch: s.batch, ClipNorm: s.clip,
		PeerTimeout: s.silence, StartTimeout: 30 * time.Second})
	if err != nil {
		return err
	}
	from, to := session.Rows()
	pace := time.NewTicker(s.pace)
	defer pace.Stop()
	feed := func(step int) (trainer.Feed, error) { return model.feed(step, from, to), nil }
	for result, err := range session.Train(ctx, s.steps, feed) {
		if err != nil {
			return err
		}
		if job.IsChief() {
			fmt.Printf("generation %d | step %d | loss %.4f\n", job.Generation(), result.Step, result.Loss)
		}
		if !s.paced() {
			continue
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// paced reports whether steps still have a minimum duration. It checks whether
// the file s.until exists until it has found the file once.
func (s *settings) paced() bool {
	if s.until != "" && s.pace > 0 {
		if _, err := os.Stat(s.until); err == nil {
			s.pace = 0
		}
	}
	return s.pace > 0
}
