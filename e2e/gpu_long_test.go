//go:build long

package e2e

import (
	"testing"

	"github.com/plx-run/plx/internal/cudatest"
)

// largeGPUPrograms take the stand-in for a GPU a while.
var largeGPUPrograms = map[string][]string{
	"mnist": {"--steps=3", "--batch-size=8", "--samples=64"},
	"cifar": {"--steps=2", "--batch-size=2", "--samples=16"},
}

// TestLargeGPUAlone is TestGPUAlone for larger programs.
func TestLargeGPUAlone(t *testing.T) { trainOnGPU(t, largeGPUPrograms) }

// TestLargeGPUWorkers is TestGPUWorkers for a larger program.
func TestLargeGPUWorkers(t *testing.T) {
	trainOnGPUs(t, "cifar", largeGPUPrograms["cifar"], cudatest.Options{}, "plx's own kernels", "ps", "allreduce", "hybrid")
}

// Two workers with cuBLAS have the bits of one too.
func TestGPUWorkersWithCuBLAS(t *testing.T) {
	trainOnGPUs(t, "mlp", gpuPrograms["mlp"], cudatest.Options{BLAS: &cudatest.BLAS{}}, "cuBLAS 12.4.5 (libcublas.so.12)", "allreduce")
}
