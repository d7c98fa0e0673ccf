//go:build linux && !nodlopen && (amd64 || arm64)

package blas

import (
	"os"
	"strings"
	"testing"

	gblas "gonum.org/v1/gonum/blas"
)

// Opening a library that is no BLAS returns an error with the library's name.
func TestOpenRefusesLibraryWithoutCBLAS(t *testing.T) {
	_, _, err := openFile("libc.so.6", 1, nil)
	if err == nil || !strings.Contains(err.Error(), "libc.so.6") || !strings.Contains(err.Error(), "no function cblas_") {
		t.Fatalf("got %v", err)
	}
}

// The environment variables that bound the number of threads are set only
// while a library is loaded.
func TestThreadVariablesAreRestored(t *testing.T) {
	t.Setenv("OMP_NUM_THREADS", "7")
	t.Setenv("OPENBLAS_NUM_THREADS", "placeholder so that the test puts back what was there")
	os.Unsetenv("OPENBLAS_NUM_THREADS")
	restore, err := setVariables(1, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := os.Getenv("OMP_NUM_THREADS"); got != "1" {
		t.Errorf("OMP_NUM_THREADS is %q while a library loads", got)
	}
	restore()
	if got := os.Getenv("OMP_NUM_THREADS"); got != "7" {
		t.Errorf("OMP_NUM_THREADS is %q afterwards", got)
	}
	if _, set := os.LookupEnv("OPENBLAS_NUM_THREADS"); set {
		t.Error("OPENBLAS_NUM_THREADS was not set before and is afterwards")
	}
}

func TestLoadedLibraryUsesOneThread(t *testing.T) {
	openBLAS(t) // or skip
	_, lib, err := choose("openblas", 1)
	if err != nil {
		t.Skipf("needs OpenBLAS: %v", err)
	}
	if lib.Name != "OpenBLAS" || lib.Threads != 1 || lib.Version == "" || lib.Config == "" || lib.Path == "" {
		t.Errorf("got %+v", lib)
	}
}

// Use refuses a library that leaves NaN in its output or computes a wrong
// product.
func TestSelfCheckRefusesAWrongLibrary(t *testing.T) {
	right := openBLAS(t)
	if err := selfCheck(right); err != nil {
		t.Fatal(err)
	}
	lazy := *right
	lazy.single.gemm = func(_, _ gblas.Transpose, _, _, _ int, _ float32, _ *float32, _ int, _ *float32, _ int, _ float32, _ *float32, _ int) {
	}
	if selfCheck(&lazy) == nil {
		t.Error("a product that writes nothing passed")
	}
	lazy = *right
	lazy.single.gemv = func(_ gblas.Transpose, _, _ int, _ float32, _ *float32, _ int, _ *float32, _ int, _ float32, _ *float32, _ int) {
	}
	if selfCheck(&lazy) == nil {
		t.Error("a vector product that writes nothing passed")
	}
}
