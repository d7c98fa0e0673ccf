// Command mnist teaches a network of one hidden layer to read digits, on
// every worker that plx starts it on:
//
//	plx launch --hosts resources.txt ./examples/mnist --sync group:2 \
//		--images train-images-idx3-ubyte.gz --labels train-labels-idx1-ubyte.gz
//
// Without files it makes images of the same shape. Network and optimiser,
// 784-100-10 and Adagrad at 0.02 on a summed loss, are those of the PALLAS
// group's guide to parallel training.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
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
	flag.StringVar(&s.images, "images", "", "IDX `file` of images, may be packed with gzip (default: made images)")
	flag.StringVar(&s.labels, "labels", "", "IDX `file` of their labels")
	flag.IntVar(&s.samples, "samples", 6000, "`number` of images to make where no file is given")
	flag.IntVar(&s.batch, "batch-size", 96, "`images` of one step, over all workers together")
	flag.IntVar(&s.steps, "steps", 500, "`steps` to take")
	flag.Float64Var(&s.rate, "learning-rate", 0.02, "`rate` of Adagrad")
	trainer.Main(s.train)
}

// read opens the files, or makes images.
func (s *settings) read(seed uint64) (data.Dataset[data.Image], error) {
	if (s.images == "") != (s.labels == "") {
		return nil, errors.New("--images and --labels: give both, or none")
	}
	if s.images != "" {
		return data.ReadMNIST(s.images, s.labels)
	}
	return data.MakeDigits(seed, 0, s.samples)
}

// train is one worker's part. The chief prints each fiftieth step.
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
	replica, err := job.Parallelize(ctx, newPerceptron(job.Seed()).build, trainer.Adagrad(s.rate), trainer.GlobalBatch(s.batch))
	if err != nil {
		return err
	}
	from, to := replica.Rows()
	x, y := make([]float32, (to-from)*pixels), make([]float32, (to-from)*classes)
	feed := trainer.Feed{
		"x": tensor.New(tensor.WithShape(to-from, pixels), tensor.WithBacking(x)),
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
		if job.IsChief() && step%50 == 0 {
			fmt.Printf("step %d | loss %.4f | accuracy %.3f\n", step, result.Loss, result.Metrics["accuracy"])
		}
	}
	return nil
}
