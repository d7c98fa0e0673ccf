package executor

import (
	"testing"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/trainer/executor/gpu"
	"github.com/plx-run/plx/trainer/nn/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// productModels are models with different matrix products: with a bias, of a
// batch of matrices, and of transposed matrices.
var productModels = map[string]build{
	"mlp": mlp(7, 20, 33, 5),
	"linear": func(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
		x, w, b := leaf(g, dt, "x", 5, 7), leaf(g, dt, "w", 7, 3), leaf(g, dt, "b", 3)
		y := must(ops.Linear(x, w, b))
		return model{g, nodes{x}, nodes{w, b}, must(gorgonia.Mean(must(gorgonia.Square(y)))), nodes{y}}
	},
	"batched": func(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
		x, w := leaf(g, dt, "x", 3, 2, 7), leaf(g, dt, "w", 3, 7, 5)
		y := must(gorgonia.BatchedMatMul(x, w))
		return model{g, nodes{x}, nodes{w}, must(gorgonia.Mean(must(gorgonia.Square(y)))), nodes{y}}
	},
	"empty": func(g *gorgonia.ExprGraph, dt tensor.Dtype) model {
		x, w := leaf(g, dt, "x", 0, 7), leaf(g, dt, "w", 7, 5)
		return model{g: g, inputs: nodes{x}, variables: nodes{w}, outputs: nodes{must(gorgonia.Mul(x, w))}}
	},
}

// With cuBLAS, the library computes the products, both directly and in graphs.
// The test recognises its products by their rounding.
func TestCuBLASComputesProducts(t *testing.T) {
	stand, d := startGPU(t, cudatest.Options{BLAS: &cudatest.BLAS{}})
	for name, b := range productModels {
		for dt, tolerance := range map[tensor.Dtype]float64{tensor.Float32: 1e-5, tensor.Float64: 1e-12} {
			t.Run(name+" "+dt.String(), func(t *testing.T) {
				want := compiled(t, b, dt, 1, false).run(t)
				before := stand.Products()
				s := compiledBy(t, func(g *gorgonia.ExprGraph, p Plan) (*Program, error) { return CompileOn(d, g, p) }, b, dt, 1, false)
				first := s.run(t)
				same(t, first, want, tolerance)
				once := stand.Products() - before
				for range 2 {
					same(t, s.run(t), first, 0)
				}
				if all := stand.Products() - before; all != 3*once || once == 0 && name != "empty" {
					t.Errorf("cuBLAS computed %d products in the first of three runs, %d in all", once, all)
				}
				check(t, s.program.machine.(*gpu.Machine).Close())
			})
		}
	}
}

// DeviceBytes includes the workspace of cuBLAS.
func TestDeviceBytesIncludeCuBLASWorkspace(t *testing.T) {
	sizes := map[bool]int{}
	for _, library := range []bool{false, true} {
		o := cudatest.Options{}
		if library {
			o.BLAS = &cudatest.BLAS{}
		}
		d := gpuWith(t, o)
		sizes[library] = sessionOn(t, d, mlp(3, 4, 5, 2)).program.DeviceBytes()
		if library && sizes[true] < d.Products.Workspace() || !library && sizes[false] > 1<<20 {
			t.Errorf("with cuBLAS %t: %d bytes", library, sizes[library])
		}
	}
}
