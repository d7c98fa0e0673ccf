// Package torchtwin trains a model with plx and with PyTorch and compares the
// results, for tests.
//
//	torchtwin.Compare(t, torchtwin.Twin{
//		Build: build, Optimizer: trainer.SGD(0.1), Config: trainer.Config{GlobalBatch: 3},
//		Feeds: feeds, Script: "testdata/torch.py",
//	})
//
// plx trains in a child process, by trainer.Main, and writes a file of
// tensors: initial values, batches, gradients of the first step, losses and
// final values. The Python script starts with the same values and uses the
// same batches. The script imports twin.py of this package.
//
// # Limits
//
// The difference of two tensors is their largest absolute difference, divided
// by the largest element of PyTorch's tensor. It therefore hides errors in
// elements that are much smaller than the largest one. A tensor that is zero
// everywhere is an error, because the comparison would be meaningless.
package torchtwin

import (
	"cmp"
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
)

// defaultSteps is the number of steps if Twin.Steps is 0.
const defaultSteps = 20

// Twin describes a training with plx, and the Python script that does the same
// with PyTorch.
type Twin struct {
	Build     func(b *nn.Builder)
	Optimizer trainer.Optimizer
	Config    trainer.Config
	// Feeds returns a function that makes the feed (the model's inputs) of
	// each step. Floating-point values must be float32, even if the model is
	// float64.
	Feeds    func(ctx context.Context, job *trainer.Job, session *trainer.Session) (func(step int) (trainer.Feed, error), error)
	Script   string         // path of the Python script
	Settings map[string]any // parameters that are passed to the Python script
	Steps    int            // number of steps; 0 means 20
	First    float64        // largest allowed difference of the first step's loss in float32; 0 means 1e-5
	// Gradients is the largest allowed difference of the first step's
	// gradients in float32; 0 means First. A ReLU whose input is near zero can
	// change gradients more than the loss.
	Gradients float64
	// Exact is the largest allowed difference in the first step in float64; 0
	// means 1e-12.
	Exact float64
	Last  float64 // largest allowed difference of the final values in float32; 0 means 1e-4
	// OnlyFirst restricts the comparison in float32 to the first step, for
	// models whose rounding errors grow from step to step, in PyTorch too. In
	// float64, all steps are compared.
	OnlyFirst bool
	// Divided also compares a training with 3 virtual workers, which compute
	// equal shares of each batch. It must be false if virtual workers draw
	// their own random samples or compute their own batch statistics.
	Divided bool
}

// limits are the largest allowed differences between plx and PyTorch.
type limits struct {
	first     float64 // limit for the loss of the first step
	gradients float64 // limit for each gradient of the first step; 0 means the same as first
	losses    float64 // limit for the loss of each step
	last      float64 // limit for the values after the last step
}

// Default limits for float32 and float64. In float32, rounding hides small
// mistakes, such as an epsilon in the wrong place; in float64 it does not.
var (
	single = limits{first: 1e-5, losses: 1e-3, last: 1e-4}
	double = limits{first: 1e-12, losses: 1e-9, last: 1e-9}
)

// Compare trains a twin in float32 and in float64. It compares the first step,
// the losses of all steps and the final values. It runs the calling test again
// in child processes, which do the training, so the test should do nothing
// before the call.
func Compare(t *testing.T, twin Twin) {
	t.Helper()
	if child, ok := inChild(); ok {
		child.train(twin) // train does not return
	}
	needTorch(t)
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	for _, dtype := range []string{"float32", "float64"} {
		runChild(t, path(dtype), dtype, 1)
	}
	python(t, twin.Script,
		path("float32"), path("torch32"), "float32",
		path("float64"), path("torch64"), "float64",
		path("float32"), path("exact"), "float64") // PyTorch trains in float64 on the data that plx wrote in float32
	plx32, torch32, torch64, exact := read(t, path("float32")), read(t, path("torch32")), read(t, path("torch64")), read(t, path("exact"))
	most, exactly := single, double
	most.first, most.gradients, most.last = cmp.Or(twin.First, most.first), twin.Gradients, cmp.Or(twin.Last, most.last)
	exactly.first = cmp.Or(twin.Exact, exactly.first)
	if twin.OnlyFirst {
		most.losses, most.last = math.Inf(1), math.Inf(1)
	}
	compare(t, "float32", plx32, torch32, most)
	compare(t, "float32 and PyTorch in float64", plx32, exact, most)
	compare(t, "float64", read(t, path("float64")), torch64, exactly)
	t.Logf("PyTorch in float32 and float64: %v", worst(torch32.differences(t, exact)))
	if twin.Divided {
		runChild(t, path("divided"), "float64", 3)
		compare(t, "float64, 3 virtual workers", read(t, path("divided")), torch64.withoutGradients(), exactly)
	}
}

// compare fails the test if a tensor of plx differs too much from PyTorch's.
func compare(t *testing.T, what string, plx, torch tensors, most limits) {
	t.Helper()
	differences := plx.differences(t, torch)
	for name, by := range differences {
		if limit := most.of(name); !(by <= limit) {
			t.Errorf("%s: %s differs by %.2g, want at most %.0e", what, name, by, limit)
		}
	}
	t.Logf("%s: %v; the first loss is %.9g, in PyTorch %.9g", what, worst(differences), plx["first loss"][0], torch["first loss"][0])
}

// of returns the largest allowed difference of the tensor called name.
func (l limits) of(name string) float64 {
	switch {
	case name == "first loss":
		return l.first
	case strings.HasPrefix(name, "gradient/"):
		return cmp.Or(l.gradients, l.first)
	case name == "loss":
		return l.losses
	}
	return l.last
}

// needTorch skips the test if PyTorch is not installed; in CI it fails the
// test.
func needTorch(t *testing.T) {
	t.Helper()
	if err := importTorch(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("needs Debian's python3-torch: %v", err)
		}
		t.Skipf("needs Debian's python3-torch: %v", err)
	}
}
