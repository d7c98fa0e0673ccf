// Command cifar trains a small convolutional network to classify pictures into
// ten classes, on every worker that plx starts:
//
//	plx launch --hosts resources.txt ./examples/cifar --files data_batch_1.bin,data_batch_2.bin
//
// The files are CIFAR-10's in its binary version. Without files it uses
// artificial pictures of the same shape.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"strings"

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
	files                 string
	samples, batch, steps int
	rate, clip, dropout   float64
}

func main() {
	var s settings
	s.define(flag.CommandLine)
	trainer.Main(s.train)
}

// define adds the flags to f.
func (s *settings) define(f *flag.FlagSet) {
	f.StringVar(&s.files, "files", "", "CIFAR-10 `files`, separated by commas (default: artificial pictures)")
	f.IntVar(&s.samples, "samples", 2000, "`number` of artificial pictures if no file is given")
	f.IntVar(&s.batch, "batch-size", 32, "`pictures` of one step, for all workers together")
	f.IntVar(&s.steps, "steps", 100, "`steps` to take")
	f.Float64Var(&s.rate, "learning-rate", 0.005, "highest `rate` of Adam: it rises over 10 steps and falls to 0 as a cosine")
	f.Float64Var(&s.clip, "clip-norm", 1, "scale gradients down to this global `norm`; with 0 they are neither scaled nor measured")
	f.Float64Var(&s.dropout, "dropout", 0.2, "`fraction` of the hidden layer to drop in training")
}

// check reports a flag that makes no sense.
func (s *settings) check() error {
	if !(s.clip >= 0) {
		return fmt.Errorf("--clip-norm is %v: want more than 0, or 0 for none", s.clip)
	}
	return cmp.Or(flags.AtLeast("samples", s.samples, 1), flags.AtLeast("batch-size", s.batch, 1), flags.AtLeast("steps", s.steps, 0),
		flags.Rate("learning-rate", s.rate), flags.Fraction("dropout", s.dropout))
}

// read reads the files, or makes artificial pictures.
func (s *settings) read(seed uint64) (data.Dataset[data.Image], error) {
	if s.files != "" {
		return data.ReadCIFAR10(strings.Split(s.files, ",")...)
	}
	return data.MakePictures(seed, 0, s.samples)
}

// scale brings pixels to about zero mean and unit variance.
var scale = data.Scale{Mean: []float32{0.45, 0.45, 0.45}, Std: []float32{0.25, 0.25, 0.25}}

// train is one worker's part. The chief prints every tenth step.
func (s *settings) train(ctx context.Context, job *trainer.Job) error {
	if err := s.check(); err != nil {
		return err
	}
	images, err := s.read(job.Seed())
	if err != nil {
		return err
	}
	net := newNetwork(job.Seed(), s.dropout)
	batches, err := data.NewBatches(images, data.BatchesConfig{
		Pixels: channels * net.side * net.side, Classes: classes, Scale: scale, Batch: s.batch, Seed: job.Seed()})
	if err != nil {
		return fmt.Errorf("--batch-size: %w", err)
	}
	optimizer := trainer.Adam(s.rate).WithSchedule(trainer.WarmUp(10, trainer.Cosine(s.rate, 0, max(1, s.steps-10))))
	replica, err := job.Parallelize(ctx, net.build, optimizer, trainer.GlobalBatch(s.batch), trainer.ClipNorm(s.clip))
	if err != nil {
		return err
	}
	from, to := replica.Rows()
	feed := func(step int) (trainer.Feed, error) {
		x, y, err := batches.Rows(step, from, to)
		return trainer.Feed{
			"x": tensor.New(tensor.WithShape(to-from, channels, net.side, net.side), tensor.WithBacking(x)),
			"y": tensor.New(tensor.WithShape(to-from, classes), tensor.WithBacking(y)),
		}, err
	}
	for result, err := range replica.Train(ctx, s.steps, feed) {
		if err != nil {
			return err
		}
		if job.IsChief() && result.Step%10 == 0 {
			fmt.Printf("step %d | loss %.4f | accuracy %.3f | gradient norm %.2f\n",
				result.Step, result.Loss, result.Metrics["accuracy"], result.Norm)
		}
	}
	return nil
}

// network is a small convolutional network: convolution, batch norm, pool,
// convolution, pool, a hidden layer with dropout, and the mean cross-entropy
// of the softmax of ten classes.
type network struct {
	seed    uint64
	side    int     // pixels of an image's side; a multiple of 4
	filters [2]int  // filters of the two convolutions
	hidden  int     // width of the hidden layer
	dropout float64 // fraction of the hidden layer that is dropped in training
	dtype   tensor.Dtype
}

// The sizes of CIFAR-10, and the momentum of the batch norm's running averages.
const (
	channels = 3
	classes  = 10
	momentum = 0.9
)

// newNetwork returns the network that the example trains.
func newNetwork(seed uint64, dropout float64) network {
	return network{seed: seed, side: 32, filters: [2]int{16, 32}, hidden: 128, dropout: dropout, dtype: tensor.Float32}
}

// build makes the model for plx. Its inputs are "x", (batch, 3, 32, 32), and
// "y", the classes one-hot, (batch, 10). The metric "accuracy" is the fraction
// of the batch that is classified correctly.
func (n network) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	b := builder.New(g, n.seed, n.dtype)
	x, y := b.Input("x", batch, channels, n.side, n.side), b.Input("y", batch, classes)
	h := n.convolution(b, "conv1", x, channels, n.filters[0])
	h = norm(b, "norm1", h, n.filters[0])
	h = pool(b, b.Node(nn.Relu(h)))
	h = n.convolution(b, "conv2", h, n.filters[0], n.filters[1])
	h = b.Node(nn.AddBias(h, b.Variable("conv2.b", trainer.Zeros(), n.filters[1])))
	h = b.Node(nn.Flatten(pool(b, b.Node(nn.Relu(h)))))
	h = linear(b, "linear1", h, n.filters[1]*(n.side/4)*(n.side/4), n.hidden, trainer.KaimingUniform(n.seed, "linear1.w"))
	h = b.Node(nn.Dropout(b.Node(nn.Relu(h)), n.dropout, "dropout1"))
	// From zeros, all classes are equally likely at first. Large first logits
	// would push the hidden layer's rectifiers below zero in a few steps, and
	// they would stay there.
	logits := linear(b, "linear2", h, n.hidden, classes, trainer.Zeros())
	return b.Done(trainer.Model{
		Loss:    b.Node(nn.CrossEntropy(logits, y)),
		Metrics: map[string]*gorgonia.Node{"accuracy": b.Node(nn.Accuracy(logits, y))},
	})
}

// convolution is 3 x 3 and keeps the image's size. It has no bias.
func (n network) convolution(b *builder.Builder, name string, x *gorgonia.Node, in, filters int) *gorgonia.Node {
	return b.Node(nn.Conv2D(x, b.Variable(name+".w", trainer.KaimingUniform(n.seed, name+".w"), filters, in, 3, 3), 1, 1))
}

func norm(b *builder.Builder, name string, x *gorgonia.Node, width int) *gorgonia.Node {
	scale, bias := b.Variable(name+".scale", gorgonia.Ones(), width), b.Variable(name+".bias", trainer.Zeros(), width)
	mean, variance := b.Leaf(name+".mean", trainer.Zeros(), width), b.Leaf(name+".variance", gorgonia.Ones(), width)
	n, err := nn.BatchNorm(x, scale, bias, mean, variance, momentum, 1e-5, name)
	b.State(trainer.State{Variable: mean, Batch: n.BatchMean, Momentum: n.Momentum})
	b.State(trainer.State{Variable: variance, Batch: n.BatchVariance, Momentum: n.Momentum})
	return b.Node(n.Out, err)
}

// pool halves the sides of an image.
func pool(b *builder.Builder, x *gorgonia.Node) *gorgonia.Node {
	return b.Node(nn.MaxPool2D(x, 2, 2, 0))
}

func linear(b *builder.Builder, name string, x *gorgonia.Node, in, out int, first gorgonia.InitWFn) *gorgonia.Node {
	return b.Node(nn.Linear(x, b.Variable(name+".w", first, in, out), b.Variable(name+".b", trainer.Zeros(), out)))
}
