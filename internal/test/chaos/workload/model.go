package main

import (
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn/ops"
	"github.com/plx-run/plx/trainer/random"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// model is a classifier. It looks up a few rows of an embedding table,
// concatenates them, and applies a hidden layer and a softmax.
type model struct{ seed uint64 }

const (
	rows    = 500 // number of rows of the table
	width   = 16
	looked  = 6 // number of table rows that one row of the batch looks up
	hidden  = 64
	classes = 8
)

// build builds the model. Its inputs are "index" (the table rows to look up),
// "class" (the label) and "fresh". The model adds "memory" to the looked-up
// rows. "memory" is state that is carried from step to step: each step
// multiplies it by 0.9 and adds "fresh".
func (m model) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	table := &trainer.Embedding{Name: "table", Rows: rows, Width: width, Dtype: tensor.Float32,
		First: trainer.UniformRows(m.seed, -0.5, 0.5)}
	found, err := table.Lookup(g, "index", batch*looked)
	if err != nil {
		return trainer.Model{}, err
	}
	parts, err := gorgonia.Reshape(found, tensor.Shape{batch, looked * width})
	if err != nil {
		return trainer.Model{}, err
	}
	input := func(name string) *gorgonia.Node {
		return gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName(name), gorgonia.WithShape(batch, looked*width))
	}
	memory, fresh := input("memory"), input("fresh")
	if parts, err = gorgonia.Add(parts, memory); err != nil {
		return trainer.Model{}, err
	}
	next, err := gorgonia.Mul(memory, gorgonia.NewConstant(float32(0.9)))
	if err == nil {
		next, err = gorgonia.Add(next, fresh)
	}
	if err != nil {
		return trainer.Model{}, err
	}
	weights := func(name string, in, out int) *gorgonia.Node {
		return gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName(name), gorgonia.WithShape(in, out),
			gorgonia.WithInit(trainer.GlorotUniform(m.seed, name)))
	}
	bias := func(name string, n int) *gorgonia.Node {
		return gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName(name), gorgonia.WithShape(n), gorgonia.WithInit(trainer.Zeros()))
	}
	w1, b1, w2, b2 := weights("w1", looked*width, hidden), bias("b1", hidden), weights("w2", hidden, classes), bias("b2", classes)
	logits, err := layers(parts, w1, b1, w2, b2)
	if err != nil {
		return trainer.Model{}, err
	}
	class := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("class"), gorgonia.WithShape(batch))
	loss, err := ops.CrossEntropy(logits, class)
	return trainer.Model{Inputs: gorgonia.Nodes{class, memory, fresh}, Variables: gorgonia.Nodes{w1, b1, w2, b2},
		Embeddings: []*trainer.Embedding{table}, Loss: loss, Carried: map[string]*gorgonia.Node{"memory": next}}, err
}

func layers(x, w1, b1, w2, b2 *gorgonia.Node) (*gorgonia.Node, error) {
	y, err := ops.Linear(x, w1, b1)
	if err == nil {
		y, err = ops.Tanh(y)
	}
	if err == nil {
		y, err = ops.Dropout(y, 0.2, "hidden")
	}
	if err == nil {
		y, err = ops.Linear(y, w2, b2)
	}
	return y, err
}

// feed returns the rows [from, to) of a step's batch. The rows depend only on
// the seed, the step and their row numbers.
func (m model) feed(step, from, to int) trainer.Feed {
	var index []int64
	var class, fresh []float32
	for row := from; row < to; row++ {
		draw := random.New(m.seed, "rows").Derive(uint64(step), uint64(row))
		_, u := draw.Pair(looked)
		about := min(int(u*classes), classes-1)
		for i := range uint64(looked) {
			_, u := draw.Pair(i)
			index = append(index, int64((random.Zipf(u, rows/classes)*classes+about)%rows))
		}
		class = append(class, float32(about))
		draw = random.New(m.seed, "memory").Derive(uint64(step), uint64(row))
		for i := range uint64(looked * width) {
			_, u := draw.Pair(i)
			fresh = append(fresh, float32(u-0.5)/10)
		}
	}
	return trainer.Feed{"index": tensor.New(tensor.WithShape(len(index)), tensor.WithBacking(index)),
		"class": tensor.New(tensor.WithShape(len(class)), tensor.WithBacking(class)),
		"fresh": tensor.New(tensor.WithShape(to-from, looked*width), tensor.WithBacking(fresh))}
}
