// Command mlp trains a small network on an artificial classification task. It
// trains alone, or on every worker that plx starts:
//
//	go run ./examples/mlp
//	plx launch --hosts resources.txt ./examples/mlp --niters 500
//
// All workers make the same data and take their part of the same batches. So
// the result is that of one worker with the whole batch, for any number of
// workers. The model and its sizes are pathway2ai's exercise.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/plx-run/plx/examples/internal/builder"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
)

func main() {
	var s settings
	s.define(flag.CommandLine)
	trainer.Main(s.train)
}

// train is one worker's part of the training.
func (s *settings) train(ctx context.Context, job *trainer.Job) error {
	if err := s.check(); err != nil {
		return err
	}
	if s.slowWorker >= job.NumWorkers() {
		return fmt.Errorf("--slow-worker is %d: the last of %d workers is %d", s.slowWorker, job.NumWorkers(), job.NumWorkers()-1)
	}
	s.seed = job.Seed()
	data, err := newGenerator(s.dimIn, s.classes, s.seed)
	if err != nil {
		return err
	}
	optimizer := optimizers[s.optimizer](s.learningRate).WithSchedule(s.rate)
	replica, err := job.Parallelize(ctx, s.build, optimizer, trainer.GlobalBatch(s.batchSize), trainer.ClipNorm(s.clipNorm))
	if err != nil {
		return err
	}
	chief, err := newReport(s, job, replica, data)
	if err != nil {
		return err
	}
	train := data.samples(0, s.trainSize)
	batches := order{samples: s.trainSize, batch: s.batchSize, seed: s.seed}
	from, to := replica.Rows()
	for replica.Steps() < s.iterations {
		step := replica.Steps()
		x, y := train.batch(batches.step(step)[from:to])
		start := time.Now()
		if err := s.waste(ctx, job); err != nil {
			return err
		}
		result, err := replica.Step(ctx, trainer.Feed{"x": x, "y": y})
		if errors.Is(err, trainer.ErrDone) {
			break
		}
		if err != nil {
			return err
		}
		if result.Late {
			continue
		}
		if err := chief.step(ctx, step, result.Loss, time.Since(start)); err != nil {
			return err
		}
	}
	return chief.finish(ctx)
}

// waste makes the slow worker slow.
func (s *settings) waste(ctx context.Context, job *trainer.Job) error {
	if job.WorkerID() != s.slowWorker {
		return nil
	}
	select {
	case <-time.After(s.slowBy):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// report prints the chief's lines and saves the weights. Other workers have
// none.
type report struct {
	replica *trainer.Replica
	test    trainer.Feed
	save    string
	every   int           // steps between two lines
	next    int           // step of the next line, or the first after it
	spent   time.Duration // time of the steps since the last line
	steps   int
}

func newReport(s *settings, job *trainer.Job, replica *trainer.Replica, data *generator) (*report, error) {
	if !job.IsChief() {
		return nil, nil
	}
	if _, err := os.Stat(filepath.Dir(s.save)); err != nil {
		return nil, fmt.Errorf("--save %s: %w", s.save, err)
	}
	x, y := data.samples(s.trainSize, s.trainSize+s.testSize()).all()
	return &report{replica: replica, test: trainer.Feed{"x": x, "y": y}, save: s.save, every: s.reportEvery}, nil
}

// step counts a step. It prints a line after the first step and after every
// further `every` steps. If a late chief has jumped over that step, it prints
// after the next one. The step time is the mean since the last line.
func (r *report) step(ctx context.Context, step int, loss float64, spent time.Duration) error {
	if r == nil {
		return nil
	}
	r.spent += spent
	r.steps++
	if step < r.next {
		return nil
	}
	r.next = (step/r.every + 1) * r.every
	test, err := r.replica.Evaluate(ctx, r.test)
	if err != nil {
		return err
	}
	milliseconds := r.spent.Seconds() * 1000 / float64(r.steps)
	if _, err := fmt.Printf("step %d | train_loss %.4f | test_loss %.4f | step time %.2fms\n", step, loss, test.Loss, milliseconds); err != nil {
		return err
	}
	r.spent, r.steps = 0, 0
	return nil
}

// finish saves the weights if --save is given.
func (r *report) finish(ctx context.Context) error {
	if r == nil || r.save == "" {
		return nil
	}
	values, err := r.replica.Values(ctx)
	if err != nil {
		return err
	}
	return save(r.save, values)
}

// build makes the model for plx: a stack of linear layers without biases, tanh
// between them, and the cross-entropy of the last layer's softmax, averaged over
// the batch. Its inputs are the features "x", (batch, in), and the labels "y",
// one-hot, (batch, classes).
func (s *settings) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := builder.New(g, s.seed, tensor.Float32)
	x, y := b.Input("x", batch, s.dimIn), b.Input("y", batch, s.classes)
	out, widths := x, s.widths()
	for i := range s.layers {
		name := fmt.Sprintf("w%d", i)
		w := b.Variable(name, trainer.KaimingUniform(s.seed, name), widths[i], widths[i+1])
		if i > 0 {
			out = b.Node(gorgonia.Tanh(out))
		}
		if i > 0 && s.dropout > 0 {
			out = b.Node(nn.Dropout(out, s.dropout, fmt.Sprintf("dropout%d", i)))
		}
		out = b.Node(gorgonia.Mul(out, w))
	}
	return b.Done(trainer.Model{Loss: b.Node(nn.CrossEntropy(out, y))})
}

// widths returns the sizes between the layers, beginning with the input's.
func (s *settings) widths() []int {
	w := []int{s.dimIn}
	for range s.layers - 1 {
		w = append(w, s.dimHidden)
	}
	return append(w, s.classes)
}
