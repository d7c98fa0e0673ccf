// Command mnist trains a network with one hidden layer to read digits, on every
// worker that plx starts:
//
//	plx launch --hosts resources.txt ./examples/mnist --sync group:2 \
//		--images train-images-idx3-ubyte.gz --labels train-labels-idx1-ubyte.gz
//
// Without files it uses artificial images of the same shape. Network and
// optimiser, 784-100-10 and Adagrad at 0.02 on a summed loss, are those of the
// PALLAS group's guide to parallel training.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/plx-run/plx/examples/internal/builder"
	"github.com/plx-run/plx/examples/internal/flags"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// settings are the program's flags.
type settings struct {
	images, labels        string
	samples, batch, steps int
	rate                  float64
}

func main() {
	var s settings
	s.define(flag.CommandLine)
	trainer.Main(s.train)
}

// define adds the flags to f.
func (s *settings) define(f *flag.FlagSet) {
	f.StringVar(&s.images, "images", "", "IDX `file` of images, packed with gzip or not (default: artificial images)")
	f.StringVar(&s.labels, "labels", "", "IDX `file` of their labels")
	f.IntVar(&s.samples, "samples", 6000, "`number` of artificial images if no file is given")
	f.IntVar(&s.batch, "batch-size", 96, "`images` of one step, for all workers together")
	f.IntVar(&s.steps, "steps", 500, "`steps` to take")
	f.Float64Var(&s.rate, "learning-rate", 0.02, "`rate` of Adagrad")
}

// check reports a flag that makes no sense.
func (s *settings) check() error {
	if (s.images == "") != (s.labels == "") {
		return errors.New("--images and --labels: give both, or none")
	}
	return cmp.Or(flags.AtLeast("samples", s.samples, 1), flags.AtLeast("batch-size", s.batch, 1), flags.AtLeast("steps", s.steps, 0),
		flags.Rate("learning-rate", s.rate))
}

// read reads the files, or makes artificial images.
func (s *settings) read(seed uint64) (data.Dataset[data.Image], error) {
	if s.images != "" {
		return data.ReadMNIST(s.images, s.labels)
	}
	return data.MakeDigits(seed, 0, s.samples)
}

// train is one worker's part. The chief prints every fiftieth step.
func (s *settings) train(ctx context.Context, job *trainer.Job) error {
	if err := s.check(); err != nil {
		return err
	}
	images, err := s.read(job.Seed())
	if err != nil {
		return err
	}
	batches, err := data.NewBatches(images, data.BatchesConfig{Pixels: pixels, Classes: classes, Batch: s.batch, Seed: job.Seed()})
	if err != nil {
		return fmt.Errorf("--batch-size: %w", err)
	}
	replica, err := job.Parallelize(ctx, newPerceptron(job.Seed()).build, trainer.Adagrad(s.rate), trainer.GlobalBatch(s.batch))
	if err != nil {
		return err
	}
	from, to := replica.Rows()
	feed := func(step int) (trainer.Feed, error) {
		x, y, err := batches.Rows(step, from, to)
		return trainer.Feed{
			"x": tensor.New(tensor.WithShape(to-from, pixels), tensor.WithBacking(x)),
			"y": tensor.New(tensor.WithShape(to-from, classes), tensor.WithBacking(y)),
		}, err
	}
	for result, err := range replica.Train(ctx, s.steps, feed) {
		if err != nil {
			return err
		}
		if job.IsChief() && result.Step%50 == 0 {
			fmt.Printf("step %d | loss %.4f | accuracy %.3f\n", result.Step, result.Loss, result.Metrics["accuracy"])
		}
	}
	return nil
}

// The sizes of MNIST.
const (
	pixels  = 28 * 28
	classes = 10
)

// perceptron is a network with one hidden layer of rectifiers, and the
// cross-entropy of its softmax, summed over the batch.
type perceptron struct {
	seed   uint64
	in     int          // features of a sample
	hidden int          // width of the hidden layer
	dtype  tensor.Dtype // float32 or float64
}

// newPerceptron returns the network that the example trains: 784-100-10.
func newPerceptron(seed uint64) perceptron {
	return perceptron{seed: seed, in: pixels, hidden: 100, dtype: tensor.Float32}
}

// build makes the model for plx. Its inputs are "x", (batch, 784), and "y", the
// classes one-hot, (batch, 10). The metric "accuracy" is the fraction of the
// batch that is classified correctly.
func (p perceptron) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := builder.New(g, p.seed, p.dtype)
	x, y := b.Input("x", batch, p.in), b.Input("y", batch, classes)
	layer := func(x *gorgonia.Node, number string, in, out int) *gorgonia.Node {
		w := b.Variable("w"+number, trainer.KaimingUniform(p.seed, "w"+number), in, out)
		return b.Node(nn.Linear(x, w, b.Variable("b"+number, trainer.Zeros(), out)))
	}
	logits := layer(b.Node(nn.Relu(layer(x, "0", p.in, p.hidden))), "1", p.hidden, classes)
	return b.Done(trainer.Model{
		Loss:     b.Node(nn.SumCrossEntropy(logits, y)),
		LossKind: trainer.Sum,
		Metrics:  map[string]*gorgonia.Node{"accuracy": b.Node(nn.Accuracy(logits, y))},
	})
}
