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

	"github.com/plx-run/plx/examples/internal/flags"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
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
