package trainer

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/trainer/blas"
	"github.com/plx-run/plx/trainer/executor/device/cuda"
	"github.com/plx-run/plx/trainer/executor/gpu"
)

// What multiplies matrices on a GPU is in the start line, and, since it decides the
// bits of a result, in what all workers must have in common.
func TestHostReportsItsMatrixLibrary(t *testing.T) {
	stand := cudatest.Start(t, cudatest.Options{BLAS: &cudatest.BLAS{}})
	g, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	own, err := gpu.On(g)
	if err != nil {
		t.Fatal(err)
	}
	with, err := gpu.On(g)
	if err != nil {
		t.Fatal(err)
	}
	if err := own.ChooseProducts("off"); err != nil {
		t.Fatal(err)
	}
	if err := with.ChooseProducts(stand.BLAS); err != nil {
		t.Fatal(err)
	}
	a, b := newHost(blas.Library{}, own), newHost(blas.Library{}, with)
	common, found := strings.CutSuffix(a.numerics, ", plx's own kernels")
	if !found || !strings.Contains(common, "gpu Stand-in GPU, kernels ") || b.numerics != common+", cuBLAS 12.4.5" {
		t.Errorf("the fingerprints are %q and %q", a.numerics, b.numerics)
	}
	if text := b.describe(1 << 20); !strings.Contains(text, "products by cuBLAS 12.4.5 (libcublas.so.12)") {
		t.Errorf("the start line has %q", text)
	}
}
