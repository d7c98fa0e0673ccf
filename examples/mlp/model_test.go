package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/blas"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// defaults are the flags' defaults, but for those that are given.
func defaults(t testing.TB, arguments ...string) *settings {
	t.Helper()
	var s settings
	f := flag.NewFlagSet("mlp", flag.ContinueOnError)
	s.define(f)
	if err := f.Parse(arguments); err != nil {
		t.Fatal(err)
	}
	if err := s.check(); err != nil {
		t.Fatal(err)
	}
	return &s
}

// machine runs the model in Gorgonia's own tape machine, on one device.
type machine struct {
	trainer.Model
	vm        gorgonia.VM
	lossValue gorgonia.Value
	gradients []gorgonia.Value
}

func newMachine(t testing.TB, s *settings, batch int) *machine {
	t.Helper()
	g := gorgonia.NewGraph()
	n, err := nn.Build(s.seed, s.build)(g, batch)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{Model: n, gradients: make([]gorgonia.Value, len(n.Variables))}
	gorgonia.Read(n.Loss, &m.lossValue)
	gradients, err := gorgonia.Grad(n.Loss, n.Variables...)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range gradients {
		gorgonia.Read(d, &m.gradients[i])
	}
	m.vm = gorgonia.NewTapeMachine(g)
	t.Cleanup(func() { m.vm.Close() })
	return m
}

// run returns the loss; the gradients are then in m.gradients.
func (m *machine) run(t testing.TB, x, y tensor.Tensor) float64 {
	t.Helper()
	if err := gorgonia.Let(m.Inputs[0], x); err != nil {
		t.Fatal(err)
	}
	if err := gorgonia.Let(m.Inputs[1], y); err != nil {
		t.Fatal(err)
	}
	m.vm.Reset()
	if err := m.vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	return float64(m.lossValue.Data().(float32))
}

func (m *machine) weight(i int) []float32 { return m.Variables[i].Value().Data().([]float32) }

// The loss and every layer's gradient against a plain computation in float64,
// which is itself checked by finite differences.
func TestGradient(t *testing.T) {
	for _, layers := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("layers=%d", layers), func(t *testing.T) {
			s := defaults(t, "--dim-in=12", "--n-classes=5", "--dim-hidden=7", fmt.Sprintf("--n-layers=%d", layers))
			checkGradient(t, s, 6)
		})
	}
}

func checkGradient(t *testing.T, s *settings, batch int) {
	t.Helper()
	g, err := newGenerator(s.dimIn, s.classes, 1)
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, s, batch)
	x, y := g.samples(0, batch).batch([]int{0, 1, 2, 3, 4, 5})
	want := &twin{settings: s, x: wide(x.Data().([]float32)), y: wide(y.Data().([]float32))}
	for i := range m.Variables {
		want.weights = append(want.weights, wide(m.weight(i)))
	}
	loss, gradients := m.run(t, x, y), want.gradients()
	if d := math.Abs(loss - want.loss()); !(d <= 1e-5*(1+want.loss())) {
		t.Errorf("loss is %v, want %v", loss, want.loss())
	}
	for i := range gradients {
		got := wide(m.gradients[i].Data().([]float32))
		largest := 0.0
		for _, v := range gradients[i] {
			largest = max(largest, math.Abs(v))
		}
		for j, v := range gradients[i] {
			if !(math.Abs(got[j]-v) <= 1e-4*largest+1e-6) {
				t.Errorf("w%d[%d]: gradient is %v, want %v", i, j, got[j], v)
			}
		}
	}
}

// twin computes the same loss in float64, row by row.
type twin struct {
	*settings
	x, y    []float64
	weights [][]float64
}

func (w *twin) loss() float64 {
	widths, total, batch := w.widths(), 0.0, len(w.x)/w.dimIn
	for r := range batch {
		h := w.x[r*w.dimIn : (r+1)*w.dimIn]
		for l, weights := range w.weights {
			out := make([]float64, widths[l+1])
			for i, v := range h {
				if l > 0 {
					v = math.Tanh(v)
				}
				for j := range out {
					out[j] += v * weights[i*len(out)+j]
				}
			}
			h = out
		}
		total += logSumExp(h)
		for j, v := range h {
			total -= v * w.y[r*w.classes+j]
		}
	}
	return total / float64(batch)
}

// gradients are central differences of the loss.
func (w *twin) gradients() [][]float64 {
	const h = 1e-6
	all := make([][]float64, len(w.weights))
	for l, weights := range w.weights {
		for i, v := range weights {
			weights[i] = v + h
			up := w.loss()
			weights[i] = v - h
			down := w.loss()
			weights[i] = v
			all[l] = append(all[l], (up-down)/(2*h))
		}
	}
	return all
}

func wide(s []float32) []float64 {
	w := make([]float64, len(s))
	for i, v := range s {
		w[i] = float64(v)
	}
	return w
}

// The default model learns, and what it learned holds for samples it never saw.
func TestTrainsAlone(t *testing.T) {
	lib, err := blas.Use(os.Getenv("PLX_BLAS"), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(lib)
	const steps = 100
	s := defaults(t)
	first, last := trainAlone(t, s, steps)
	if first < 3.4 || first > 4.2 {
		t.Errorf("test loss starts at %.4f: want about log(32) and a little more", first)
	}
	if last > 1.2 {
		t.Errorf("test loss after %d steps is %.4f", steps, last)
	}
}

// trainAlone returns the test loss before and after.
func trainAlone(t *testing.T, s *settings, steps int) (first, last float64) {
	g, err := newGenerator(s.dimIn, s.classes, s.seed)
	if err != nil {
		t.Fatal(err)
	}
	train, test := g.samples(0, s.trainSize), g.samples(s.trainSize, s.trainSize+s.testSize())
	m := newMachine(t, s, s.batchSize)
	o := order{samples: s.trainSize, batch: s.batchSize, seed: s.seed}
	first = testLoss(t, m, test, s.batchSize)
	start := time.Now()
	for step := range steps {
		x, y := train.batch(o.step(step))
		loss := m.run(t, x, y)
		for i, d := range m.gradients {
			descend(m.weight(i), d.Data().([]float32), float32(s.rate(step)))
		}
		if step%25 == 0 || step == steps-1 {
			spent := time.Since(start) / time.Duration(min(step, 24)+1)
			t.Logf("step %d | train_loss %.4f | test_loss %.4f | step time %.2fms", step, loss, testLoss(t, m, test, s.batchSize), spent.Seconds()*1e3)
			start = time.Now()
		}
	}
	return first, testLoss(t, m, test, s.batchSize)
}

func descend(w, d []float32, rate float32) {
	for i := range w {
		w[i] -= rate * d[i]
	}
}

// testLoss is over the whole batches of d.
func testLoss(t *testing.T, m *machine, d *dataset, batch int) float64 {
	t.Helper()
	sum, n := 0.0, len(d.labels)/batch
	indices := make([]int, batch)
	for b := range n {
		for i := range indices {
			indices[i] = b*batch + i
		}
		x, y := d.batch(indices)
		sum += m.run(t, x, y)
	}
	return sum / float64(n)
}
