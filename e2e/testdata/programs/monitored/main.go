// Command monitored is the monitored session of the notebook: it saves, writes summaries,
// and ends at a step that the hook for that names.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
)

var last = flag.Int("last-step", 40, "`step` after which all tasks end")

func main() { trainer.Main(train) }

func train(ctx context.Context, job *trainer.Job) error {
	build := func(b *nn.Builder) {
		b.MSE(b.Dense("layer", b.Input("x", 3), 1), b.Input("y", 1))
	}
	session, err := job.Parallelize(ctx, nn.Build(job.Seed(), build), trainer.SGD(0.1), trainer.Config{GlobalBatch: 8, StopAtStep: *last})
	if err != nil {
		return err
	}
	from, to := session.Rows()
	for {
		var x, y []float32
		for row := from; row < to; row++ {
			for i := range 3 {
				x = append(x, float32((session.Steps()+row*(i+1))%5)/5)
			}
			y = append(y, x[len(x)-1])
		}
		_, err := session.Step(ctx, trainer.Feed{"x": nn.Batch(x, 3), "y": nn.Batch(y, 1)})
		if errors.Is(err, trainer.ErrDone) {
			break
		}
		if err != nil {
			return err
		}
	}
	if job.IsChief() {
		fmt.Printf("global step %d\n", session.Steps())
	}
	return nil
}
