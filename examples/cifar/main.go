// Command cifar trains a small convolutional network to classify pictures into
// ten classes, on every worker that plx starts:
//
//	plx launch --hosts resources.txt ./examples/cifar --files data_batch_1.bin,data_batch_2.bin
//
// --files names files of CIFAR-10's binary version. With --folder the program
// reads PNG and JPEG images instead, from a folder with one subfolder for each
// class. With --records it reads TFRecord files of tf.train.Examples. Without
// these flags it generates artificial pictures.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"

	"github.com/plx-run/plx/examples/internal/corrupt"
	"github.com/plx-run/plx/examples/internal/flags"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
	"github.com/plx-run/plx/trainer/nn"
)

// settings holds the values of the program's flags.
type settings struct {
	files, folder, records string
	skip                   bool // skip corrupt pictures instead of failing
	augment                bool
	samples, batch, steps  int
	rate, clip, dropout    float64
}

func main() {
	var s settings
	s.define(flag.CommandLine)
	trainer.Main(s.train)
}

// define defines the program's flags on f.
func (s *settings) define(f *flag.FlagSet) {
	f.StringVar(&s.files, "files", "", "CIFAR-10 `files`, separated by commas (default: artificial pictures)")
	f.StringVar(&s.folder, "folder", "", "`folder` with a folder of PNG and JPEG images for each class")
	f.StringVar(&s.records, "records", "", "TFRecord `files` of 32 x 32 images, separated by commas, * for any name; their records are interleaved")
	f.BoolVar(&s.skip, "skip-corrupt", false, "skip corrupt pictures of --folder and --records, and count them")
	f.BoolVar(&s.augment, "augment", false, "move each picture by up to 4 pixels, and mirror half of them, differently in each epoch")
	f.IntVar(&s.samples, "samples", 2000, "`number` of artificial pictures to generate if no file is given")
	f.IntVar(&s.batch, "batch-size", 32, "`pictures` of one step, for all workers together")
	f.IntVar(&s.steps, "steps", 100, "`steps` to take")
	f.Float64Var(&s.rate, "learning-rate", 0.005, "highest `rate` of Adam: it rises over 10 steps and falls to 0 as a cosine")
	f.Float64Var(&s.clip, "clip-norm", 1, "scale gradients down to this global `norm`; with 0 they are neither scaled nor measured")
	f.Float64Var(&s.dropout, "dropout", 0.2, "`fraction` of the hidden layer to drop in training")
}

// check returns an error if the value of a flag is invalid.
func (s *settings) check() error {
	if !(s.clip >= 0) {
		return fmt.Errorf("--clip-norm is %v: want more than 0, or 0 for none", s.clip)
	}
	return cmp.Or(flags.AtLeast("samples", s.samples, 1), flags.AtLeast("batch-size", s.batch, 1), flags.AtLeast("steps", s.steps, 0),
		flags.Rate("learning-rate", s.rate), flags.Fraction("dropout", s.dropout))
}

// scale normalises pixels to a mean of about zero and a variance of about one.
var scale = data.Scale{Mean: []float32{0.45, 0.45, 0.45}, Std: []float32{0.25, 0.25, 0.25}}

// train runs on each worker. The chief, worker 0, prints every tenth step.
func (s *settings) train(ctx context.Context, job *trainer.Job) error {
	if err := s.check(); err != nil {
		return err
	}
	skipped := corrupt.Skipped(job, s.skip)
	images, net, err := s.read(job.Seed(), skipped)
	if err != nil {
		return err
	}
	if images.Len() < s.batch {
		return fmt.Errorf("--batch-size is %d: there are %d pictures", s.batch, images.Len())
	}
	epochs, err := s.epochs(images, net.side, job.Seed())
	if err != nil {
		return err
	}
	shard, err := trainer.Shard(ctx, job, epochs, s.batch)
	if err != nil {
		return err
	}
	optimizer := trainer.Adam(s.rate).WithSchedule(trainer.WarmUp(10, trainer.Cosine(s.rate, 0, max(1, s.steps-10))))
	session, err := job.Parallelize(ctx, nn.Build(job.Seed(), net.build), optimizer, trainer.Config{GlobalBatch: s.batch, ClipNorm: s.clip})
	if err != nil {
		return err
	}
	feed := shard.Feed(func(images []data.Image) (trainer.Feed, error) {
		x, y, err := scale.Batch(images, channels*net.side*net.side, net.classes)
		return trainer.Feed{"x": nn.Batch(x, channels, net.side, net.side), "y": nn.Batch(y, net.classes)}, err
	})
	for result, err := range session.Train(ctx, s.steps, feed) {
		if err != nil {
			return err
		}
		if job.IsChief() && result.Step%10 == 0 {
			fmt.Printf("step %d | loss %.4f | accuracy %.3f | gradient norm %.2f\n",
				result.Step, result.Loss, result.Metrics["accuracy"], result.Norm)
		}
	}
	corrupt.Log(job, skipped)
	return nil
}

// network is a small convolutional network. Its layers are convolution, batch
// norm, pooling, convolution, pooling, a hidden layer with dropout, and a
// softmax over the classes. The loss is the mean cross-entropy.
type network struct {
	side    int // height and width of an image in pixels; a multiple of 4
	classes int
	filters [2]int  // number of filters of each of the two convolutions
	hidden  int     // width of the hidden layer
	dropout float64 // fraction of the hidden layer that is dropped in training
}

// Sizes of the images and number of classes of the CIFAR-10 dataset.
const (
	channels     = 3
	cifarSide    = 32
	cifarClasses = 10
)

// newNetwork returns the network that this example trains on CIFAR-10.
func newNetwork(dropout float64) network {
	return network{side: cifarSide, classes: cifarClasses, filters: [2]int{16, 32}, hidden: 128, dropout: dropout}
}

// build builds the model. Its inputs are the images "x", of shape (batch, 3,
// 32, 32), and the one-hot classes "y". The metric "accuracy" is the fraction
// of the batch that is classified correctly.
func (n network) build(b *nn.Builder) {
	x, y := b.Input("x", channels, n.side, n.side), b.Labels("y", n.classes)
	kernel, halved := nn.Window{Size: 3, Pad: 1}, nn.Window{Size: 2} // A convolution with the window kernel keeps the image's size. Pooling with the window halved halves the size.
	h := b.BatchNorm("norm1", b.Conv("conv1", x, n.filters[0], kernel, nn.NoBias()))
	h = b.MaxPool(b.Relu(h), halved)
	h = b.MaxPool(b.Relu(b.Conv("conv2", h, n.filters[1], kernel)), halved)
	h = b.Relu(b.Dense("linear1", b.Flatten(h), n.hidden, nn.First(nn.Kaiming())))
	// Zero weights make all classes equally likely at first. Large initial
	// logits would push the inputs of the hidden layer's rectifiers below zero
	// within a few steps. A rectifier has no gradient there, so it would never
	// recover.
	logits := b.Dense("linear2", b.Dropout("dropout1", h, n.dropout), n.classes, nn.First(nn.Zeros()))
	b.CrossEntropy(logits, y)
	b.Metric("accuracy", b.Node(nn.Accuracy(logits, y)))
}
