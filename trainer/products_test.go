package trainer

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/trainer/blas"
	"github.com/plx-run/plx/trainer/executor/device/cuda"
	"github.com/plx-run/plx/trainer/executor/gpu"
)

// The library that multiplies matrices on the GPU must be in the log line at
// the start. It decides the bits of results, so it must also be in the string
// that has to be equal on all workers.
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
