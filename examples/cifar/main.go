// Command cifar teaches a small convolutional network to tell ten kinds of
// pictures apart, on every worker that plx starts it on:
//
//	plx launch --hosts resources.txt ./examples/cifar --files data_batch_1.bin,data_batch_2.bin
//
// The files are CIFAR-10's in its binary version. Without them it makes
// pictures of the same shape.
package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
	"gorgonia.org/tensor"
)

// settings are the program's flags.
type settings struct {
	files                 string
	samples, batch, steps int
	rate, clip            float64
}

func main() {
	var s settings
	flag.StringVar(&s.files, "files", "", "CIFAR-10 `files`, with commas between them (default: made pictures)")
	flag.IntVar(&s.samples, "samples", 2000, "`number` of pictures to make where no file is given")
	flag.IntVar(&s.batch, "batch-size", 32, "`pictures` of one step, over all workers together")
	flag.IntVar(&s.steps, "steps", 100, "`steps` to take")
	flag.Float64Var(&s.rate, "learning-rate", 0.002, "highest `rate` of Adam: it rises over 10 steps and falls to 0 as a cosine")
	flag.Float64Var(&s.clip, "clip-norm", 5, "scale gradients down to this global `norm`; 0: do not")
	trainer.Main(s.train)
}

// read opens the files, or makes pictures.
func (s *settings) read(seed uint64) (data.Dataset[data.Image], error) {
	if s.files != "" {
		return data.ReadCIFAR10(strings.Split(s.files, ",")...)
	}
	return data.MakePictures(seed, 0, s.samples)
}

// train is one worker's part. The chief prints each tenth step.
func (s *settings) train(ctx context.Context, job *trainer.Job) error {
	images, err := s.read(job.Seed())
	if err != nil {
		return err
	}
	epochs, err := data.NewEpochs(data.EpochsConfig{Samples: images.Len(), Batch: s.batch, Seed: job.Seed()})
	if err != nil {
		return err
	}
	fill, err := data.NewFiller(images, classes, data.Scale{})
	if err != nil {
		return err
	}
	net := newNetwork(job.Seed())
	optimizer := trainer.Adam(s.rate).WithSchedule(trainer.WarmUp(10, trainer.Cosine(s.rate, 0, max(1, s.steps-10))))
	replica, err := job.Parallelize(ctx, net.build, optimizer, trainer.GlobalBatch(s.batch), trainer.ClipNorm(s.clip))
	if err != nil {
		return err
	}
	from, to := replica.Rows()
	x, y := make([]float32, (to-from)*channels*net.side*net.side), make([]float32, (to-from)*classes)
	feed := trainer.Feed{
		"x": tensor.New(tensor.WithShape(to-from, channels, net.side, net.side), tensor.WithBacking(x)),
		"y": tensor.New(tensor.WithShape(to-from, classes), tensor.WithBacking(y)),
	}
	var rows []int
	for replica.Steps() < s.steps {
		step := replica.Steps()
		rows = epochs.Rows(step, from, to, rows[:0])
		if err := fill.Fill(rows, x, y); err != nil {
			return err
		}
		result, err := replica.Step(ctx, feed)
		if err != nil {
			return err
		}
		if job.IsChief() && step%10 == 0 {
			fmt.Printf("step %d | loss %.4f | accuracy %.3f | gradient norm %.2f\n",
				step, result.Loss, result.Metrics["accuracy"], result.Norm)
		}
	}
	return nil
}
