//go:build cu && linux

package cgocuda

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// A program with the tag cu starts and trains on a host without a driver. It
// computes the same as a program without the tag: on the CPU and on the
// stand-in for a GPU, with plx's kernels and with cuBLAS. It prints the
// package through which it opened the GPU.
func TestProgram(t *testing.T) {
	if cudatest.OnMachine() {
		t.Skip("the packed test of a machine's GPU has no Go to build a program with")
	}
	const example = "github.com/plx-run/plx/examples/mlp"
	tagged, plain := filepath.Join(t.TempDir(), "mlp"), testhosts.Binary(t, example)
	// "go build" would link the program each time; "go run" takes a program
	// that it linked before from the build cache
	if out, err := exec.Command("go", "run", "-tags=cu", "-buildvcs=false", "-exec=cp", example, tagged).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	f, err := elf.Open(tagged)
	if err != nil {
		t.Fatal(err)
	}
	needed, err := f.ImportedLibraries()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil || slices.ContainsFunc(needed, func(name string) bool { return strings.HasPrefix(name, "libcuda") }) {
		t.Errorf("the program needs %v to start: %v", needed, err)
	}

	train := func(program, device string, env ...string) (string, error) {
		c := exec.Command(program, "--niters=6", "--dim-in=48", "--dim-hidden=32", "--n-layers=3", "--n-classes=6", "--train-size=240",
			"--batch-size=24", "--dropout=0.3", "--report-every=2", "--seed=3", "--digest", "--device="+device)
		c.Env = append(append(os.Environ(), "PLX_LOG_LEVEL=verbose"), env...)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	result := regexp.MustCompile(`loss [0-9.]+|digest [0-9a-f]+`)
	same := func(device string, env ...string) {
		t.Helper()
		got, err := train(tagged, device, env...)
		if err != nil {
			t.Fatalf("on the %s: %v\n%s", device, err, got)
		}
		want, err := train(plain, device, env...)
		if err != nil {
			t.Fatalf("on the %s, without the tag: %v\n%s", device, err, want)
		}
		if a, b := result.FindAllString(got, -1), result.FindAllString(want, -1); len(a) < 4 || !slices.Equal(a, b) {
			t.Errorf("on the %s: %v, without the tag %v", device, a, b)
		}
		const through = " through gorgonia.org/cu)"
		if strings.Contains(got, through) != (device == "gpu") || strings.Contains(want, through) {
			t.Errorf("on the %s:\n%s\nwithout the tag:\n%s", device, got, want)
		}
	}
	absent := "PLX_CUDA=libabsent.so.7"
	same("cpu", absent)
	for _, o := range []cudatest.Options{{Seed: 1}, {BLAS: &cudatest.BLAS{}}} {
		same("gpu", cudatest.Start(t, o).Environment()...)
	}
	if out, err := train(tagged, "gpu", absent); err == nil || !strings.Contains(out, "libabsent.so.7") || !strings.Contains(out, "install NVIDIA's driver") {
		t.Errorf("without a driver: %v\n%s", err, out)
	}
}
