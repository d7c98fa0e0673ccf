// Package torchtwin trains a model with plx and again with PyTorch, and compares the two,
// for tests.
//
//	torchtwin.Compare(t, torchtwin.Twin{
//		Build: build, Optimizer: trainer.SGD(0.1), Config: trainer.Config{GlobalBatch: 3},
//		Feeds: feeds, Script: "testdata/torch.py",
//	})
//
// plx trains in a process of its own, by trainer.Main, and writes a file of tensors: first
// values, batches, gradients of the first step, losses and last values. The script starts
// from the same values and takes the same batches. It imports twin.py of this package.
//
// # What it refuses
//
// A difference is the largest one of two tensors over the largest element of PyTorch's. So
// it says little of elements that are much smaller than the largest one. A gradient that
// is zero everywhere is refused: nothing would be compared.
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

// defaultSteps is the number of steps that are compared if a twin says nothing else.
const defaultSteps = 20

// Twin is a training of plx and the script that does the same.
type Twin struct {
	Build     func(b *nn.Builder)
	Optimizer trainer.Optimizer
	Config    trainer.Config
	// Feeds returns what makes the feed of each step. Floating point numbers are float32,
	// also for a model in float64.
	Feeds    func(ctx context.Context, job *trainer.Job, session *trainer.Session) (func(step int) (trainer.Feed, error), error)
	Script   string         // Python file
	Settings map[string]any // numbers that the script needs
	Steps    int            // 0 means 20
	First    float64        // largest difference of the first step in float32; 0 means 1e-5
	// Gradients is the largest difference of the first step's gradients in float32, where a
	// rectifier that flips moves them more than the loss; 0 means First.
	Gradients float64
	// Exact is the largest difference of the first step in float64; 0 means 1e-12.
	Exact float64
	Last  float64 // largest difference of the last values in float32; 0 means 1e-4
	// OnlyFirst: in float32 only the first step is compared, because rounding grows from step
	// to step, in PyTorch too. In float64 all are.
	OnlyFirst bool
	// Divided: the training on 3 virtual workers is the same too. It is not if they draw
	// samples or take moments of their own.
	Divided bool
}

// limits are the largest differences that pass.
type limits struct {
	first     float64 // of the first step's loss
	gradients float64 // of each gradient of the first step; 0 means first
	losses    float64 // of the loss of each step
	last      float64 // of the values after the last step
}

// Rounding hides small mistakes in float32, such as an epsilon in the wrong place, and not
// in float64.
var (
	single = limits{first: 1e-5, losses: 1e-3, last: 1e-4}
	double = limits{first: 1e-12, losses: 1e-9, last: 1e-9}
)

// Compare trains a twin in float32 and in float64 and compares the first step, the losses
// of all steps and the values after them. The test runs again in child processes, which
// train, so it does nothing before it calls Compare.
func Compare(t *testing.T, twin Twin) {
	t.Helper()
	if child, ok := inChild(); ok {
		child.train(twin) // it does not return
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
		path("float32"), path("exact"), "float64") // float64 on what plx had in float32
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

// compare reports what of plx's values differs too much from PyTorch's.
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

// of is the limit of a tensor.
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

// needTorch skips the test if there is no PyTorch. In CI it fails then.
func needTorch(t *testing.T) {
	t.Helper()
	if err := importTorch(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("needs Debian's python3-torch: %v", err)
		}
		t.Skipf("needs Debian's python3-torch: %v", err)
	}
}
