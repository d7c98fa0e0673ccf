package trainer

import (
	"fmt"
	"math"
	"slices"

	"github.com/plx-run/plx/trainer/wire"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// regression is the reference for jobs that fit y = x·w: the same training in
// plain loops, without a graph and without other tasks.
type regression struct {
	w   [3]float64
	sum bool // the loss
}

// regressed holds the results of one step of the reference loop.
type regressed struct {
	loss, norm, mean float64
	guesses          []float64
	gradient         [3]float64
}

// look computes loss, metrics and gradient for some rows without updating w.
func (r *regression) look(x, y []float64) (done regressed) {
	n := float64(len(y))
	divisor := n
	if r.sum {
		divisor = 1
	}
	for i := range y {
		guess := x[3*i]*r.w[0] + x[3*i+1]*r.w[1] + x[3*i+2]*r.w[2]
		off := guess - y[i]
		done.guesses = append(done.guesses, guess)
		done.mean += guess / n
		done.loss += off * off / divisor
		for k := range r.w {
			done.gradient[k] += 2 * off * x[3*i+k] / divisor
		}
	}
	for _, g := range done.gradient {
		done.norm += g * g
	}
	done.norm = math.Sqrt(done.norm)
	return done
}

// apply updates w by plain gradient descent. It clips the gradient to the norm
// clip, unless that is 0.
func (r *regression) apply(done regressed, rate, clip float64) {
	if clip > 0 && done.norm > clip {
		rate *= clip / done.norm
	}
	for k := range r.w {
		r.w[k] -= rate * done.gradient[k]
	}
}

// build builds the same model as a Gorgonia graph.
func (r regression) build(g *gorgonia.ExprGraph, batch int) (Model, error) {
	x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(batch, 3))
	y := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("y"), gorgonia.WithShape(batch, 1))
	w := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("w"), gorgonia.WithShape(3, 1), gorgonia.WithInit(Zeros()))
	guess := gorgonia.Must(gorgonia.Mul(x, w))
	squares := gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(guess, y))))
	m := Model{
		Inputs: gorgonia.Nodes{x, y}, Variables: gorgonia.Nodes{w}, LossKind: Mean,
		Metrics: map[string]*gorgonia.Node{"mean guess": gorgonia.Must(gorgonia.Mean(guess))},
		Fetches: map[string]*gorgonia.Node{"guess": guess, "squares": squares},
	}
	if r.sum {
		m.LossKind, m.Loss = Sum, gorgonia.Must(gorgonia.Sum(squares))
	} else {
		m.Loss = gorgonia.Must(gorgonia.Mean(squares))
	}
	return m, nil
}

// rows returns rows [from, to) of the batch of a step, which fit y = x·(1, -2,
// 0.5) with a small error.
func (regression) rows(step, from, to int) (x, y []float64) {
	for row := from; row < to; row++ {
		at := float64(step*100 + row)
		a, b, c := math.Sin(at), math.Cos(at*1.3), math.Sin(at*0.7)
		x, y = append(x, a, b, c), append(y, a-2*b+0.5*c+0.1*math.Cos(at*3))
	}
	return x, y
}

func (r regression) feed(step, from, to int) Feed {
	x, y := r.rows(step, from, to)
	return Feed{"x": dense(tensor.Float64, x, to-from, 3), "y": dense(tensor.Float64, y, to-from, 1)}
}

// near compares with a tolerance, because the job adds in another order than
// the reference loop.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-12*(1+math.Abs(b)) }

func allNear(what string, got, want []float64) error {
	if !slices.EqualFunc(got, want, near) {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

// has compares the job's variable w with that of the reference loop.
func (r *regression) has(values map[string]*tensor.Dense) error {
	return allNear("w", values["w"].Data().([]float64), r.w[:])
}

func floats64(memory []byte) []float64 { return wire.Floats[float64](memory) }
