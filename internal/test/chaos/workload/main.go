// Workload is what the fault grid trains: a table of rows, dense weights that
// are cut over all workers, dropout, momentum, a rate that falls, state that
// each row of the batch carries from step to step. All of that has to come back
// after a fault. A step takes a few milliseconds, but no less than --pace, so
// that a fault hits the step that it is meant for.
//
// The chief prints every step.
//
// With --ledger it trains something else, in which every gradient that was
// applied can be counted: what workers that do not wait for each other come to
// has no bits that could be compared.
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
	steps   int           // number of steps to take
	batch   int           // rows of a step, over all workers
	clip    float64       // norm to which gradients are clipped; 0: they are not
	pace    time.Duration // shortest time of a step
	until   string        // file after whose appearance steps have no shortest time; "": they always have
	silence time.Duration // how long another task may be silent
	ledger  string        // folder below the job's checkpoints for what workers note; "": nothing is counted
	quiet   int           // with ledger: steps without a change after which nothing more is to come
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

// paced reports whether steps must still take as long as the pace. Once they need not,
// it looks no more.
func (s *settings) paced() bool {
	if s.until != "" && s.pace > 0 {
		if _, err := os.Stat(s.until); err == nil {
			s.pace = 0
		}
	}
	return s.pace > 0
}
