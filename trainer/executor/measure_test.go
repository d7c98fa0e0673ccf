package executor

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/blas"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// BenchmarkStep runs the step of examples/mlp alternately here and on the tape
// machine and reports the medians.
func BenchmarkStep(b *testing.B) {
	lib, err := blas.Use("auto", 1)
	check(b, err)
	b.Log(lib)
	defer blas.Use("gonum", 1)
	model := mlp(64, 1024, 256, 256, 256, 32)
	s := compiled(b, model, tensor.Float32, 1, false)
	calm(s.values)
	vm := tapeFor(b, model)
	defer vm.Close()
	var here, tape []time.Duration
	for range max(b.N, 20) {
		start := time.Now()
		_, err := s.program.Run(operation.Call{Train: true}, s.gradients, nil)
		check(b, err)
		here = append(here, time.Since(start))
		start = time.Now()
		check(b, vm.RunAll())
		vm.Reset()
		tape = append(tape, time.Since(start))
	}
	b.ReportMetric(median(here)*1e3, "ms/step")
	b.ReportMetric(median(tape)*1e3, "ms/tape-step")
	b.ReportMetric(median(tape)/median(here), "times")
}

func tapeFor(t testing.TB, b build) gorgonia.VM {
	m := b(gorgonia.NewGraph(), tensor.Float32)
	weights := values(m.variables, 1, false)
	calm(weights)
	for i, v := range weights {
		check(t, gorgonia.Let(m.variables[i], v))
	}
	for i, v := range values(m.inputs, 2, false) {
		check(t, gorgonia.Let(m.inputs[i], v))
	}
	grads, err := gorgonia.Grad(m.loss, m.variables...)
	check(t, err)
	read := make([]gorgonia.Value, len(grads)+1)
	for i, n := range append(append(gorgonia.Nodes{}, grads...), m.loss) {
		gorgonia.Read(n, &read[i])
	}
	return gorgonia.NewTapeMachine(m.g)
}

// calm scales weights the way initial ones are: what a layer gives is about as
// large as what it takes.
func calm(weights []gorgonia.Value) {
	for _, w := range weights {
		x := w.Data().([]float32)
		for i := range x {
			x[i] *= float32(2 / math.Sqrt(float64(w.Shape()[0])))
		}
	}
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return d[len(d)/2].Seconds()
}
