// Command mnist trains a network with one hidden layer to recognise digits, on every worker that plx starts:
//
//	plx launch --hosts resources.txt ./examples/mnist --sync group:2 --images train-images-idx3-ubyte.gz --labels train-labels-idx1-ubyte.gz
//
// Without files it generates artificial images of the same shape. The network (784-100-10) and the optimiser
// (Adagrad at 0.02 on a summed loss) are taken from the guide to parallel training of the PALLAS group.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
	"github.com/plx-run/plx/trainer/nn"
)

const pixels, classes, hidden = 28 * 28, 10, 100 // number of pixels and classes of MNIST, and of units in the hidden layer

var (
	images  = flag.String("images", "", "IDX `file` of images, packed with gzip or not (default: artificial images)")
	labels  = flag.String("labels", "", "IDX `file` of their labels")
	samples = flag.Int("samples", 6000, "`number` of artificial images if no file is given")
	batch   = flag.Int("batch-size", 96, "`images` of one step, for all workers together")
	steps   = flag.Int("steps", 500, "`steps` to take")
	rate    = flag.Float64("learning-rate", 0.02, "`rate` of Adagrad")
	trained = flag.String("evaluate", "", "train nothing: say how well the checkpoint in this `folder` reads the images")
)

func main() { trainer.Main(train) }

// model returns a function that builds the network: one hidden layer of rectifiers. Its loss is the cross-entropy
// of the softmax, summed over the batch.
func model(in, width int) func(b *nn.Builder) {
	return func(b *nn.Builder) {
		x, y, first := b.Input("x", in), b.Labels("y", classes), nn.First(nn.Kaiming())
		h := b.Relu(b.Dense("hidden", x, width, first, nn.Names("w0", "b0")))
		logits := b.Dense("out", h, classes, first, nn.Names("w1", "b1"))
		b.Loss(b.Node(nn.SumCrossEntropy(logits, y)), trainer.Sum)
		b.Metric("accuracy", b.Node(nn.Accuracy(logits, y)))
	}
}

// read checks the flags and reads the files, or generates artificial images.
func read(seed uint64) (data.Dataset[data.Image], error) {
	for name, wrong := range map[string]bool{"samples": *samples < 1, "batch-size": *batch < 1, "steps": *steps < 0,
		"learning-rate": !(*rate > 0 && *rate <= math.MaxFloat32)} {
		if wrong {
			return nil, fmt.Errorf("--%s is %v: out of range", name, flag.Lookup(name).Value)
		}
	}
	if (*images == "") != (*labels == "") {
		return nil, fmt.Errorf("--images and --labels: give both, or none")
	} else if *images != "" {
		return data.ReadMNIST(*images, *labels)
	}
	return data.MakeDigits(seed, 0, *samples)
}

// train runs on each worker. The chief, worker 0, prints every fiftieth step.
func train(ctx context.Context, job *trainer.Job) error {
	dataset, err := read(job.Seed())
	if err == nil && dataset.Len() < *batch {
		err = fmt.Errorf("--batch-size is %d: there are %d images", *batch, dataset.Len())
	}
	if err == nil && *trained != "" {
		return evaluate(ctx, job, dataset)
	}
	if err != nil {
		return err
	}
	shard, err := trainer.Epochs(ctx, job, dataset, *batch)
	if err != nil {
		return err
	}
	session, err := job.Parallelize(ctx, nn.Build(job.Seed(), model(pixels, hidden)), trainer.Adagrad(*rate), trainer.Config{GlobalBatch: *batch})
	if err != nil {
		return err
	}
	for r, err := range session.Train(ctx, *steps, shard.Feed(feed)) {
		if err != nil {
			return err
		}
		if job.IsChief() && r.Step%50 == 0 {
			fmt.Printf("step %d | loss %.4f | accuracy %.3f\n", r.Step, r.Loss, r.Metrics["accuracy"])
		}
	}
	return nil
}

func feed(images []data.Image) (trainer.Feed, error) {
	x, y, err := data.Scale{}.Batch(images, pixels, classes)
	return trainer.Feed{"x": nn.Batch(x, pixels), "y": nn.Batch(y, classes)}, err
}

// evaluate classifies all images with the variables of a checkpoint and prints the accuracy.
func evaluate(ctx context.Context, job *trainer.Job, images data.Dataset[data.Image]) error {
	c, err := trainer.OpenCheckpoint(ctx, *trained, nn.Build(job.Seed(), model(pixels, hidden)))
	if err != nil {
		return err
	}
	defer c.Close() // the checkpoint was only read, so an error of Close does not matter
	all := make([]data.Image, images.Len())
	for i := range all {
		if all[i], err = images.At(i); err != nil {
			return err
		}
	}
	fed, err := feed(all)
	if err != nil {
		return err
	}
	r, err := c.Evaluate(ctx, fed)
	fmt.Printf("checkpoint of step %d | %d images | accuracy %.3f\n", c.Step(), len(all), r.Metrics["accuracy"])
	return err
}
