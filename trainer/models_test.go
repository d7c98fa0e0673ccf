package trainer

import (
	"fmt"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// mlp builds a multi-layer perceptron: linear layers without bias, tanh
// between them, and cross-entropy with one-hot labels. widths are the sizes of
// the input, the hidden layers and the output.
func mlp(dt tensor.Dtype, kind LossKind, widths ...int) Build {
	return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
		classes := widths[len(widths)-1]
		x := gorgonia.NewMatrix(g, dt, gorgonia.WithName("x"), gorgonia.WithShape(batch, widths[0]))
		y := gorgonia.NewMatrix(g, dt, gorgonia.WithName("y"), gorgonia.WithShape(batch, classes))
		m := Model{Inputs: gorgonia.Nodes{x, y}, LossKind: kind}
		h := x
		for i := range len(widths) - 1 {
			name := fmt.Sprint("w", i)
			w := gorgonia.NewMatrix(g, dt, gorgonia.WithName(name), gorgonia.WithShape(widths[i], widths[i+1]),
				gorgonia.WithInit(KaimingUniform(7, name)))
			m.Variables = append(m.Variables, w)
			if i > 0 {
				h = gorgonia.Must(gorgonia.Tanh(h))
			}
			h = gorgonia.Must(gorgonia.Mul(h, w))
		}
		logs := gorgonia.Must(gorgonia.Log(gorgonia.Must(gorgonia.SoftMax(h, 1))))
		hits := gorgonia.Must(gorgonia.HadamardProd(logs, y))
		total := gorgonia.Must(gorgonia.Neg(gorgonia.Must(gorgonia.Sum(hits))))
		if kind == Mean {
			rows := gorgonia.NewConstant(float32(batch))
			if dt == tensor.Float64 {
				rows = gorgonia.NewConstant(float64(batch))
			}
			total = gorgonia.Must(gorgonia.Div(total, rows))
		}
		m.Loss = total
		m.Fetches = map[string]*gorgonia.Node{"logits": h}
		return m, nil
	}
}

// linear builds the regression y = x*w + b with scalar variables.
func linear(g *gorgonia.ExprGraph, batch int) (Model, error) {
	x := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("x"), gorgonia.WithShape(batch))
	y := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("y"), gorgonia.WithShape(batch))
	w := gorgonia.NewScalar(g, tensor.Float32, gorgonia.WithName("w"), gorgonia.WithValue(float32(0)))
	b := gorgonia.NewScalar(g, tensor.Float32, gorgonia.WithName("b"), gorgonia.WithValue(float32(0)))
	guess := gorgonia.Must(gorgonia.Add(gorgonia.Must(gorgonia.Mul(x, w)), b))
	loss := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(guess, y))))))
	return Model{Inputs: gorgonia.Nodes{x, y}, Variables: gorgonia.Nodes{w, b}, Loss: loss}, nil
}

// rows returns rows [from, to) of the batch of a step: normally distributed
// features, and a class that depends on them.
func rows(dt tensor.Dtype, step, from, to, in, classes int) Feed {
	x, y := make([]float64, 0, (to-from)*in), make([]float64, (to-from)*classes)
	for row := from; row < to; row++ {
		random := rand.New(rand.NewPCG(uint64(step), uint64(row)))
		class := random.IntN(classes)
		y[(row-from)*classes+class] = 1
		for i := range in {
			v := random.NormFloat64()
			if i%classes == class {
				v += 2
			}
			x = append(x, v)
		}
	}
	return Feed{"x": dense(dt, x, to-from, in), "y": dense(dt, y, to-from, classes)}
}

func dense(dt tensor.Dtype, x []float64, shape ...int) *tensor.Dense {
	if dt == tensor.Float64 {
		return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(x))
	}
	narrow := make([]float32, len(x))
	for i, v := range x {
		narrow[i] = float32(v)
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(narrow))
}
