package main

import (
	"math"
	"testing"

	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
)

func TestGradientAndConvergence(t *testing.T) {
	for _, batch := range []int{1, 3, 6} {
		g := gorgonia.NewGraph()
		m, err := nn.Build(1, build)(g, batch)
		if err != nil {
			t.Fatal(err)
		}
		var loss, dw, db gorgonia.Value
		gorgonia.Read(m.Loss, &loss)
		gradients, err := gorgonia.Grad(m.Loss, m.Variables...)
		if err != nil {
			t.Fatal(err)
		}
		gorgonia.Read(gradients[0], &dw)
		gorgonia.Read(gradients[1], &db)
		vm := gorgonia.NewTapeMachine(g)
		defer vm.Close()
		w, b := m.Variables[0].Value().Data().([]float32), m.Variables[1].Value().Data().([]float32)
		xs := []float32{1, 2, 3, 1, 2, 3}[:batch]
		for step := range 300 {
			if err := gorgonia.Let(m.Inputs[0], nn.Batch(xs, 1)); err != nil {
				t.Fatal(err)
			}
			if err := gorgonia.Let(m.Inputs[1], nn.Batch(xs, 1)); err != nil {
				t.Fatal(err)
			}
			if err := vm.RunAll(); err != nil {
				t.Fatal(err)
			}
			vm.Reset()
			l, gw, gb := byHand(xs, float64(w[0]), float64(b[0]))
			close(t, step, "loss", first(loss), l)
			close(t, step, "gradient of W", first(dw), gw)
			close(t, step, "gradient of b", first(db), gb)
			w[0] -= 0.1 * float32(gw)
			b[0] -= 0.1 * float32(gb)
		}
		if l, _, _ := byHand(xs, float64(w[0]), float64(b[0])); l > 1e-4 {
			t.Errorf("batch %d: loss after 300 steps is %v", batch, l)
		}
	}
}

// byHand is the loss and its derivatives on the line y = x.
func byHand(xs []float32, w, b float64) (loss, dw, db float64) {
	n := float64(len(xs))
	for _, x := range xs {
		x := float64(x)
		off := w*x + b - x
		loss += off * off / n
		dw += 2 * off * x / n
		db += 2 * off / n
	}
	return loss, dw, db
}

func first(v gorgonia.Value) float64 {
	if s, ok := v.Data().([]float32); ok {
		return float64(s[0])
	}
	return float64(v.Data().(float32))
}

func close(t *testing.T, step int, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-5*(1+math.Abs(want))) {
		t.Fatalf("step %d: %s is %v, want %v", step, what, got, want)
	}
}
