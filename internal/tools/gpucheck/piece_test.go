//go:build linux && (amd64 || arm64)

package main

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// asProgram makes the test's binary this program: its own child processes.
const asProgram = "PLX_GPUCHECK_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// testFolder is a folder without packed programs, whose own program is this test.
func testFolder(t *testing.T) *folder {
	t.Helper()
	t.Setenv(asProgram, "1")
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := openFolder(own, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// All figures are measured on the stand-in.
func TestPieces(t *testing.T) {
	cudatest.Start(t, cudatest.Options{Faults: true})
	f, r := testFolder(t), &record{}
	for what, want := range map[string]int{"sizes": len(sizes(true)), "moves": len(moves(true))} {
		e := f.exec(t.Context(), nil, f.own, f.args(what)...)
		if err := e.failed(what); err != nil {
			t.Fatalf("%v\n%s", err, e.all)
		}
		n, err := r.add(e.out)
		if err != nil || n != want {
			t.Errorf("%s: %d figures, %v, want %d:\n%s", what, n, err, want, e.out)
		}
	}
	for _, got := range r.Figures {
		if got.Ms <= 0 || got.What == "" {
			t.Errorf("figure %+v", got)
		}
	}
}

// Without a driver the program says so in one line.
func TestNoDriver(t *testing.T) {
	t.Setenv("PLX_CUDA", "libabsent.so.7")
	f := testFolder(t)
	e := f.exec(t.Context(), nil, f.own, "-quick", "-out", f.temp)
	if e.err == nil || e.err.Error() != "exit status 2" || strings.Count(e.all, "\n") != 1 || e.out != "" ||
		!strings.Contains(e.all, "there is no GPU to check") || !strings.Contains(e.all, "libabsent.so.7") {
		t.Errorf("%v\n%s", e.err, e.all)
	}
}

// The checks of results find one wrong element among those that they compare, or a
// gradient that lacks one of its parts.
func TestChecks(t *testing.T) {
	cudatest.Start(t, cudatest.Options{})
	b, err := openBench(true)
	if err != nil {
		t.Fatal(err)
	}
	p, window := kernels.Matrices{Count: 1, M: 4, N: 5, K: 6, TransA: true}, square(2, 3, 4)
	x, y, out := b.noise(1, 24, kernels.Float64), b.noise(2, 30, kernels.Float64), b.array(20, kernels.Float64)
	b.do(b.prepare(kernels.Product(kernels.Float64, p))(out.at, x.at, y.at).put)
	b.fetch(out)
	images, filters, results := b.noise(3, 96, kernels.Float32), b.noise(4, 54, kernels.Float32), b.array(64, kernels.Float32)
	dy, gradient := b.noise(5, 64, kernels.Float32), b.array(54, kernels.Float32)
	zeros := b.array(64, kernels.Float32)
	b.do(b.prepare(kernels.Convolve(kernels.Float32, window, 2))(results.at, images.at, filters.at).put)
	b.do(b.prepare(kernels.ConvolveFilterGradient(kernels.Float32, window, 2))(gradient.at, images.at, dy.at).put)
	b.fetch(results)
	b.fetch(gradient)
	if b.err != nil {
		t.Fatal(b.err)
	}
	for what, c := range map[string]struct {
		check func() error
		spoil func()
	}{
		"product":     {func() error { return checkProduct(p, out, x, y) }, func() { out.doubles[19] += 1e-13 }},
		"convolution": {func() error { return checkConvolution(window, 2, results, images, filters) }, func() { results.singles[63] *= 1.0001 }},
		"gradient":    {func() error { return checkGradient(results, dy, filters, gradient) }, func() { gradient.singles[7] += 0.01 }},
		"NaN":         {func() error { return checkGradient(results, dy, zeros, zeros) }, func() { zeros.singles[7] = float32(math.NaN()) }},
	} {
		if err := c.check(); err != nil && what != "NaN" {
			t.Errorf("%s: %v", what, err)
		}
		if c.spoil(); c.check() == nil {
			t.Errorf("%s: a wrong result passes", what)
		}
	}
}

// Words on standard output that are no figures are an error.
func TestNoFigures(t *testing.T) {
	r := &record{}
	if n, err := r.add(`{"what":"a","ms":1}` + "\nwords"); n != 1 || err == nil {
		t.Errorf("%d figures, %v", n, err)
	}
	if n, err := r.addTorch(`{"version":"2.9"}` + `{"what":"a","ms":3}{"what":"other","ms":4}`); n != 1 || err != nil || r.Torch != "2.9" || r.Figures[0].TorchMs != 3 {
		t.Errorf("%d figures, %v, %+v", n, err, r)
	}
}
