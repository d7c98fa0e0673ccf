// Command mlp trains a small network on an artificial classification task. It
// trains in a single process, or on every worker that plx starts:
//
//	go run ./examples/mlp
//	plx launch --hosts resources.txt ./examples/mlp --niters 500
//
// With --files it reads CSV or NumPy files.
//
// All workers have the same data, and each computes its share of the same
// batches. Therefore the result is the same for any number of workers. The
// model and its sizes are taken from an exercise of the project pathway2ai.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gorgonia.org/gorgonia"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
)

func main() {
	var s settings
	s.define(flag.CommandLine)
	trainer.Main(s.train)
}

// train runs on each worker.
func (s *settings) train(ctx context.Context, job *trainer.Job) error {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "batch-size" })
	if !given {
		s.batchSize = job.EvenBatch(s.batchSize)
	}
	if err := s.check(); err != nil {
		return err
	}
	if s.slowWorker >= job.NumWorkers() {
		return fmt.Errorf("--slow-worker is %d: the last of %d workers is %d", s.slowWorker, job.NumWorkers(), job.NumWorkers()-1)
	}
	s.seed = job.Seed()
	train, test, about, err := s.load(job)
	if err != nil {
		return err
	}
	shard, err := trainer.Shard(ctx, job, &order{samples: s.trainSize, batch: s.batchSize, seed: s.seed, about: about}, s.batchSize)
	if err != nil {
		return err
	}
	optimizer := optimizers[s.optimizer](s.learningRate).WithSchedule(s.rate)
	var chief *report
	config := trainer.Config{GlobalBatch: s.batchSize, ClipNorm: s.clipNorm}
	if s.patience > 0 {
		early := func(ctx context.Context, r trainer.Result) error { return chief.stopEarly(ctx, r.Step) }
		config.Hooks = []trainer.Hook{{Name: "patience", ChiefOnly: true, EverySteps: s.reportEvery, After: early}}
	}
	session, err := job.Parallelize(ctx, nn.Build(s.seed, s.build), optimizer, config)
	if err != nil {
		return err
	}
	if chief, err = newReport(s, job, session, test); err != nil {
		return err
	}
	batches := &batches{from: train}
	feed := shard.Feed(func(indices []int) (trainer.Feed, error) {
		x, y := batches.next(indices)
		return trainer.Feed{"x": x, "y": y}, s.waste(ctx, job)
	})
	start := time.Now()
	for result, err := range session.Train(ctx, s.iterations, feed) {
		if err != nil {
			return err
		}
		if !result.Late {
			if err := chief.step(ctx, result.Step, result.Loss, time.Since(start)); err != nil {
				return err
			}
		}
		start = time.Now()
	}
	return chief.finish(ctx)
}

// waste delays each step of the worker that --slow-worker names.
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

// report prints the lines of the chief (worker 0) and saves the weights. On
// other workers the *report is nil.
type report struct {
	session *trainer.Session
	test    trainer.Feed
	save    string
	every   int           // number of steps between two printed lines
	next    int           // number of the step after which the next line is due
	spent   time.Duration // time that the steps since the last printed line took
	steps   int

	patience  int     // number of evaluations without a lower loss after which training stops; 0 never stops it
	waited    float64 // number of evaluations since the lowest loss
	evaluated int     // step after which loss was computed; -1 if it was not computed yet
	loss      float64 // loss over the test samples
}

func newReport(s *settings, job *trainer.Job, session *trainer.Session, test *dataset) (*report, error) {
	if !job.IsChief() {
		return nil, nil
	}
	if _, err := os.Stat(filepath.Dir(s.save)); err != nil {
		return nil, fmt.Errorf("--save %s: %w", s.save, err)
	}
	if session.Steps() == 0 { // the session starts at step 0: it does not resume from a checkpoint
		if _, err := fmt.Println(s); err != nil {
			return nil, err
		}
	}
	x, y := test.all()
	return &report{session: session, test: trainer.Feed{"x": x, "y": y}, save: s.save, every: s.reportEvery, patience: s.patience, evaluated: -1}, nil
}

// step counts a finished step. It prints a line after step 0 and after every
// r.every further steps. If the chief skipped the step to print, because it
// was too slow for the other workers, step prints after the chief's next step.
// The printed step time is the mean since the last line.
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
	if err := r.evaluate(ctx, step); err != nil {
		return err
	}
	milliseconds := r.spent.Seconds() * 1000 / float64(r.steps)
	if _, err := fmt.Printf("step %d | train_loss %.4f | test_loss %.4f | step time %.2fms\n", step, loss, r.loss, milliseconds); err != nil {
		return err
	}
	r.spent, r.steps = 0, 0
	return nil
}

// evaluate computes the test loss after the given step, unless it has already
// done so for this step.
func (r *report) evaluate(ctx context.Context, step int) error {
	if r.evaluated == step {
		return nil
	}
	test, err := r.session.Evaluate(ctx, r.test)
	r.evaluated, r.loss = step, test.Loss
	return err
}

// stopEarly stops the training on all workers if the test loss has not fallen
// in the last r.patience evaluations. Checkpoints contain the lowest loss and
// the number of evaluations since then. Therefore a resumed training stops at
// the same step as an uninterrupted one.
func (r *report) stopEarly(ctx context.Context, step int) error {
	began := time.Now()
	defer func() { r.spent -= time.Since(began) }() // r.spent is the time of the steps, so subtract the time of the evaluation
	if err := r.evaluate(ctx, step); err != nil {
		return err
	}
	r.waited, _ = r.session.Noted("waited")
	if r.waited++; r.session.SaveIfBest(-r.loss) {
		r.waited = 0
	}
	if err := r.session.Note("waited", r.waited); err != nil {
		return err
	}
	if int(r.waited) >= r.patience {
		return trainer.ErrDone
	}
	return nil
}

// finish prints a line if the training was stopped early, and saves the
// weights if --save is given.
func (r *report) finish(ctx context.Context) error {
	if r == nil {
		return nil
	}
	if r.patience > 0 && int(r.waited) >= r.patience {
		if _, err := fmt.Printf("stopped after step %d | no lower test_loss in %d evaluations\n", r.evaluated, int(r.waited)); err != nil {
			return err
		}
	}
	if r.save == "" {
		return nil
	}
	values, err := r.session.Values(ctx)
	if err != nil {
		return err
	}
	return save(r.save, values)
}

// build builds the model: linear layers without biases, with tanh between
// them. The loss is the cross-entropy of the softmax of the last layer,
// averaged over the batch. The inputs are the features "x", of shape (batch,
// features), and the one-hot labels "y", of shape (batch, classes).
func (s *settings) build(b *nn.Builder) {
	x, y := b.Input("x", s.dimIn), b.Labels("y", s.classes)
	out, widths := x, s.widths()
	for i := range s.layers {
		w := b.Variable(fmt.Sprintf("w%d", i), nn.Kaiming(), widths[i], widths[i+1])
		if i > 0 {
			out = b.Node(gorgonia.Tanh(out))
		}
		if i > 0 && s.dropout > 0 {
			out = b.Dropout(fmt.Sprintf("dropout%d", i), out, s.dropout)
		}
		out = b.Node(gorgonia.Mul(out, w))
	}
	b.CrossEntropy(out, y)
}

// widths returns the input width of the first layer, followed by the output
// width of each layer.
func (s *settings) widths() []int {
	w := []int{s.dimIn}
	for range s.layers - 1 {
		w = append(w, s.dimHidden)
	}
	return append(w, s.classes)
}
