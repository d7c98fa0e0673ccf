package executor

import (
	"math"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/executor/gpu"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/nn/ops"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// An invalid class number gives the same error on a GPU as on the CPU. The
// next run is not affected.
func TestGPURunReportsInvalidClassNumber(t *testing.T) {
	d := testGPU(t)
	for dt, bad := range map[tensor.Dtype]func(b []byte, row int){
		tensor.Int:     func(b []byte, row int) { memory.View[int](b)[row] = 3 },
		tensor.Int64:   func(b []byte, row int) { memory.View[int64](b)[row] = -1 },
		tensor.Int32:   func(b []byte, row int) { memory.View[int32](b)[row] = math.MaxInt32 },
		tensor.Float32: func(b []byte, row int) { memory.View[float32](b)[row] = 0.5 },
		tensor.Float64: func(b []byte, row int) { memory.View[float64](b)[row] = math.NaN() },
	} {
		var said []string
		var losses []float64
		for _, on := range []*gpu.Device{nil, d} {
			g := gorgonia.NewGraph()
			logits, labels := leaf(g, tensor.Float32, "logits", 4, 3), leaf(g, dt, "labels", 4)
			loss := must(ops.CrossEntropy(logits, labels))
			p, err := CompileOn(on, g, Plan{Inputs: nodes{labels}, Fixed: nodes{logits}, FixedValues: values(nodes{logits}, 1, false),
				Loss: loss, Differentiate: nodes{logits}, Outputs: nodes{must(ops.Accuracy(logits, labels))}})
			check(t, err)
			b, _ := memory.Raw(p.Input(0))
			clear(b)
			gradients := [][]byte{memory.Aligned(48)}
			run := func() float64 {
				loss, err := p.Run(operation.Call{Train: true}, gradients, nil)
				check(t, err)
				return loss
			}
			before := run()
			bad(b, 2)
			_, err = p.Run(operation.Call{Train: true}, gradients, nil)
			if err == nil || !strings.Contains(err.Error(), "row 2 has the label ") {
				t.Fatalf("labels of type %v: %v", dt, err)
			}
			clear(b)
			if after := run(); after != before {
				t.Errorf("labels of type %v: the loss is %v after the error, %v before", dt, after, before)
			}
			said, losses = append(said, err.Error()), append(losses, before)
		}
		if said[0] != said[1] || math.Abs(losses[0]-losses[1]) > 1e-6 {
			t.Errorf("labels of type %v: the CPU says %q, the gpu %q; losses %v", dt, said[0], said[1], losses)
		}
	}
}
