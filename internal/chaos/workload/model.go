package main

import (
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"github.com/plx-run/plx/trainer/random"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// model tells the class of a few rows of a table: their mean, a hidden layer,
// a softmax.
type model struct{ seed uint64 }

const (
	rows    = 500 // of the table
	width   = 16
	looked  = 6 // rows that one row of the batch looks up
	hidden  = 64
	classes = 8
)

// build is the model as plx wants it. It is fed "index", the rows that are
// looked up, "class", and "memory", which is added to what was found.
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
	memory := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("memory"), gorgonia.WithShape(batch, looked*width))
	if parts, err = gorgonia.Add(parts, memory); err != nil {
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
	loss, err := nn.CrossEntropy(logits, class)
	return trainer.Model{Inputs: gorgonia.Nodes{class, memory}, Variables: gorgonia.Nodes{w1, b1, w2, b2},
		Embeddings: []*trainer.Embedding{table}, Loss: loss}, err
}

func layers(x, w1, b1, w2, b2 *gorgonia.Node) (*gorgonia.Node, error) {
	y, err := nn.Linear(x, w1, b1)
	if err == nil {
		y, err = nn.Tanh(y)
	}
	if err == nil {
		y, err = nn.Dropout(y, 0.2, "hidden")
	}
	if err == nil {
		y, err = nn.Linear(y, w2, b2)
	}
	return y, err
}

// memory is what each row of the batch carries from step to step.
type memory struct {
	model
	from, to int           // rows of the batch that this worker has: from, up to but not including to
	values   *tensor.Dense // shape (to-from, looked*width)
}

func newMemory(m model, from, to int) *memory {
	return &memory{m, from, to, tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(to-from, looked*width))}
}

// step takes what a step leaves behind: a little of what came before it, and
// something of its own.
func (m *memory) step(step int) {
	values := m.values.Data().([]float32)
	for row := m.from; row < m.to; row++ {
		draw := random.New(m.seed, "memory").Derive(uint64(step), uint64(row))
		for i := range looked * width {
			_, u := draw.Pair(uint64(i))
			at := (row-m.from)*looked*width + i
			values[at] = 0.9*values[at] + float32(u-0.5)/10
		}
	}
}

// feed is the rows [from, to) of a step's batch. They follow from the seed and
// their numbers alone.
func (m model) feed(step, from, to int) trainer.Feed {
	var index []int64
	var class []float32
	for row := from; row < to; row++ {
		draw := random.New(m.seed, "rows").Derive(uint64(step), uint64(row))
		_, u := draw.Pair(looked)
		about := min(int(u*classes), classes-1)
		for i := range uint64(looked) {
			_, u := draw.Pair(i)
			index = append(index, int64((random.Zipf(u, rows/classes)*classes+about)%rows))
		}
		class = append(class, float32(about))
	}
	return trainer.Feed{"index": tensor.New(tensor.WithShape(len(index)), tensor.WithBacking(index)),
		"class": tensor.New(tensor.WithShape(len(class)), tensor.WithBacking(class))}
}
