// Command cnn is a convolutional network, of plain operations of Gorgonia or, with --nn, of
// layers.
package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

const (
	side    = 8
	classes = 2
	batch   = 12
)

var layers = flag.Bool("nn", false, "use layers of package nn")

func main() { trainer.Main(train) }

func plain(job *trainer.Job) trainer.Build {
	return func(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
		must := gorgonia.Must
		x := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithName("x"), gorgonia.WithShape(batch, 1, side, side))
		y := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("y"), gorgonia.WithShape(batch, classes))
		filter := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithName("filter"), gorgonia.WithShape(3, 1, 3, 3), job.KaimingUniform())
		w := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("w"), gorgonia.WithShape(3*16, classes), job.GlorotUniform())
		h := must(gorgonia.Rectify(must(gorgonia.Conv2d(x, filter, tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))))
		h = must(gorgonia.MaxPool2D(h, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
		logits := must(gorgonia.Mul(must(gorgonia.Reshape(h, tensor.Shape{batch, 3 * 16})), w))
		logs := must(gorgonia.Log(must(gorgonia.SoftMax(logits, 1))))
		each := must(gorgonia.Sum(must(gorgonia.HadamardProd(logs, y)), 1))
		loss, err := gorgonia.Neg(must(gorgonia.Mean(each)))
		return trainer.Model{Inputs: gorgonia.Nodes{x, y}, Variables: gorgonia.Nodes{filter, w}, Loss: loss}, err
	}
}

func layered(b *nn.Builder) {
	x, y := b.Input("x", 1, side, side), b.Labels("y", classes)
	h := b.MaxPool(b.Relu(b.Conv("conv", x, 3, nn.Window{Size: 3, Pad: 1})), nn.Window{Size: 2})
	b.CrossEntropy(b.Dense("out", b.Flatten(h), classes), y)
}

// rows makes rows [from, to) of a batch: a horizontal or a vertical bar.
func rows(step, from, to int) trainer.Feed {
	x, y := make([]float32, (to-from)*side*side), make([]float32, (to-from)*classes)
	for i := range to - from {
		class, at := (from+i)%classes, (step+3*(from+i))%side
		y[i*classes+class] = 1
		for k := range side {
			pixel := at*side + k
			if class == 1 {
				pixel = k*side + at
			}
			x[i*side*side+pixel] = 1
		}
	}
	return trainer.Feed{"x": nn.Batch(x, 1, side, side), "y": nn.Batch(y, classes)}
}

func train(ctx context.Context, job *trainer.Job) error {
	build := plain(job)
	if *layers {
		build = nn.Build(job.Seed(), layered)
	}
	session, err := job.Parallelize(ctx, build, trainer.Momentum(0.1, 0.9), trainer.Config{GlobalBatch: batch})
	if err != nil {
		return err
	}
	from, to := session.Rows()
	var last float64
	for result, err := range session.Train(ctx, 60, func(step int) (trainer.Feed, error) { return rows(step, from, to), nil }) {
		if err != nil {
			return err
		}
		last = result.Loss
	}
	if job.IsChief() {
		fmt.Printf("learned %t\n", last < 0.1)
	}
	return nil
}
