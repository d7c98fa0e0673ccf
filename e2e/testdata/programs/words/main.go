// Command words learns a number for each word, by a plain lookup of rows or, with --table,
// by a trainer.Embedding.
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
	words = 40
	width = 4
	batch = 8
)

var table = flag.Bool("table", false, "use a trainer.Embedding")

func main() { trainer.Main(train) }

func build(job *trainer.Job) trainer.Build {
	return func(g *gorgonia.ExprGraph, batch int) (m trainer.Model, err error) {
		y := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("y"), gorgonia.WithShape(batch))
		w := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("w"), gorgonia.WithShape(width), gorgonia.WithInit(gorgonia.Ones()))
		m = trainer.Model{Inputs: gorgonia.Nodes{y}, Frozen: gorgonia.Nodes{w}}
		var rows *gorgonia.Node
		if *table {
			e := &trainer.Embedding{Name: "words", Rows: words, Width: width, First: trainer.UniformRows(job.Seed(), -0.1, 0.1)}
			m.Embeddings = []*trainer.Embedding{e}
			rows, err = e.Lookup(g, "word", batch)
		} else {
			index := gorgonia.NewVector(g, tensor.Int, gorgonia.WithName("word"), gorgonia.WithShape(batch))
			all := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("words"), gorgonia.WithShape(words, width), job.Uniform(-0.1, 0.1))
			m.Inputs, m.Variables = append(m.Inputs, index), gorgonia.Nodes{all}
			rows, err = gorgonia.ByIndices(all, index, 0)
		}
		if err != nil {
			return m, err
		}
		guess := gorgonia.Must(gorgonia.Mul(rows, w))
		m.Loss, err = gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(guess, y)))))
		return m, err
	}
}

func train(ctx context.Context, job *trainer.Job) error {
	session, err := job.Parallelize(ctx, build(job), trainer.SGD(0.5), trainer.Config{GlobalBatch: batch})
	if err != nil {
		return err
	}
	from, to := session.Rows()
	feed := func(step int) (trainer.Feed, error) {
		var word []int
		var y []float32
		for row := from; row < to; row++ {
			at := (step*batch + 3*row) % words
			word, y = append(word, at), append(y, float32(at)/words)
		}
		return trainer.Feed{"word": nn.Batch(word), "y": nn.Batch(y)}, nil
	}
	var last float64
	for result, err := range session.Train(ctx, 100, feed) {
		if err != nil {
			return err
		}
		last = result.Loss
	}
	if job.IsChief() {
		fmt.Printf("learned %t\n", last < 0.01)
	}
	return nil
}
