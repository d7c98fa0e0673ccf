package e2e

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// gpuPrograms are examples that take little time on the stand-in for a GPU.
var gpuPrograms = map[string][]string{
	"linear": {"--steps=6"},
	"mlp": {"--niters=6", "--dim-in=48", "--dim-hidden=32", "--n-layers=3", "--n-classes=6", "--train-size=240", "--batch-size=24",
		"--optimizer=adam", "--learning-rate=0.01", "--clip-norm=0.5", "--dropout=0.3", "--report-every=2"},
}

var lossField = regexp.MustCompile(`loss ([0-9.]+)`)

// losses returns all numbers in out that follow the word "loss".
func losses(t *testing.T, out string) (all []float64) {
	t.Helper()
	for _, found := range lossField.FindAllStringSubmatch(out, -1) {
		x, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	return all
}

// Every program trains alone on a GPU. Its bits do not depend on the order in
// which the GPU's streams advance, or on whether the CPU or the GPU updates
// the variables. Its losses equal those of the CPU except for rounding.
func TestGPUAlone(t *testing.T) { trainOnGPU(t, gpuPrograms) }

func trainOnGPU(t *testing.T, programs map[string][]string) {
	for name, flags := range programs {
		t.Run(name, func(t *testing.T) {
			program := testhosts.Binary(t, "github.com/plx-run/plx/examples/"+name)
			flags := append(slices.Clone(flags), "--digest", "--seed=3")
			run := func(d *cudatest.Driver, device string, more ...string) string {
				cmd := exec.Command(program, slices.Concat(flags, []string{"--device=" + device}, more)...)
				cmd.Env = append(environ(), "CUDA_VISIBLE_DEVICES=0")
				if d != nil {
					cmd.Env = append(cmd.Env, d.Environment()...)
				}
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("on the %s: %v\n%s", device, err, out)
				}
				return string(out)
			}
			cpu, first := run(nil, "cpu"), run(cudatest.Start(t, cudatest.Options{Seed: 1}), "gpu")
			second := run(cudatest.Start(t, cudatest.Options{Seed: 77}), "gpu", "--check-numerics")
			if a, b := digestLine.FindString(first), digestLine.FindString(second); a == "" || a != b {
				t.Errorf("the digests are %q if the gpu updates and %q if the CPU does", a, b)
			}
			want, got := losses(t, cpu), losses(t, first)
			if len(want) == 0 || len(want) != len(got) {
				t.Fatalf("%d losses on the gpu, %d on the cpu:\n%s", len(got), len(want), first)
			}
			for i := range want {
				if !(math.Abs(want[i]-got[i]) <= 2e-4*max(1, want[i])) {
					t.Errorf("loss %d is %v on the gpu, %v on the cpu", i, got[i], want[i])
				}
			}
		})
	}
}

// Two workers on two hosts, each with a GPU, end with the same bits as one
// worker. The long test TestGPUWorkersWithCuBLAS covers all-reduce.
func TestGPUWorkers(t *testing.T) {
	trainOnGPUs(t, "mlp", gpuPrograms["mlp"], cudatest.Options{}, "plx's own kernels", "ps", "hybrid")
}

// trainOnGPUs trains a program alone and with two workers. The first line of
// the training must name products, the library that multiplies matrices.
func trainOnGPUs(t *testing.T, name string, flags []string, o cudatest.Options, products string, archs ...string) {
	b := newBench(t, testhosts.Options{Hosts: 2, GPUs: []int{1, 1}}).withPlx()
	o.Folder = b.shared()
	d := cudatest.Start(t, o)
	env := []string{}
	for _, v := range d.Environment() {
		env = append(env, "--env", v)
	}
	program := testhosts.Binary(t, "github.com/plx-run/plx/examples/"+name)
	flags = append(slices.Clone(flags), "--digest", "--seed=3", "--device=gpu", "--virtual-workers=2")
	alone := exec.Command(program, flags...)
	alone.Env = append(append(environ(), "CUDA_VISIBLE_DEVICES=0", "PLX_LOG_LEVEL=verbose"), d.Environment()...)
	out, err := alone.CombinedOutput()
	if err != nil {
		t.Fatalf("alone: %v\n%s", err, out)
	}
	want := digestLine.FindString(string(out))
	if line := ", products by " + products + ", on the CPU "; !strings.Contains(string(out), line) {
		t.Errorf("no %q in\n%s", line, out)
	}
	for _, arch := range archs {
		t.Run(name+"/"+arch, func(t *testing.T) {
			b := b.in(t)
			args := append([]string{"launch", "--hosts", b.ResourceFile("h1: 0", "h2: 0")}, env...)
			res := b.want(0, append(append(args, program, "--arch="+arch), flags...)...)
			if got := digestLine.FindString(res.stdout); got == "" || got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	b.hostsGone(0)
}

// unusable is the exit status of a worker that cannot use its GPU.
const unusable = 69

// A program that cannot use its GPU prints the reason and a remedy. It does
// not train on the CPU instead.
func TestGPURefused(t *testing.T) {
	program := testhosts.Binary(t, "github.com/plx-run/plx/examples/linear")
	given, absent := "CUDA_VISIBLE_DEVICES=0", "PLX_CUDA=libabsent.so.1"
	run := func(reason, hint string, env []string, flags ...string) {
		t.Helper()
		cmd := exec.Command(program, append([]string{"--steps=2"}, flags...)...)
		cmd.Env = append(environ(), env...)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != unusable || strings.Contains(string(out), "step 0") {
			t.Errorf("%v %v: %v, want status %d:\n%s", env, flags, err, unusable, out)
		}
		contains(t, string(out), reason, "plx: hint: "+hint)
	}
	empty := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run("was given gpu 0 and cannot use it: open NVIDIA's driver", "install NVIDIA's driver", []string{given, absent})
	run("was given gpu 0 and cannot use it: open NVIDIA's driver", "install NVIDIA's driver", []string{given, absent}, "--device=auto")
	run("file too short", "install NVIDIA's driver", []string{given, "PLX_CUDA=" + empty})
	run("--device gpu: open NVIDIA's driver", "install NVIDIA's driver", []string{absent}, "--device=gpu")
	for _, c := range []struct {
		options      cudatest.Options
		reason, hint string
	}{
		{cudatest.Options{Memory: 1 << 10}, "the program needs", "use a smaller batch"},
		{cudatest.Options{Version: 8000}, "its driver is for CUDA 8.0, and plx's kernels need one for CUDA 9.0", "install a newer driver"},
		{cudatest.Options{Capable: 61}, "Stand-in GPU has compute capability 6.1, and plx's kernels need 7.0", "give the worker a newer gpu"},
		{cudatest.Options{NoPTX: true}, "CUDA_ERROR_INVALID_PTX", "install a newer driver"},
	} {
		run(c.reason, c.hint, append(cudatest.Start(t, c.options).Environment(), given))
	}
	cmd := exec.Command(program, "--steps=2")
	cmd.Env = append(append(environ(), cudatest.Start(t, cudatest.Options{}).Environment()...), given, "PLX_CUBLAS=libabsent.so.2")
	out, err := cmd.CombinedOutput()
	if err == nil || strings.Contains(string(out), "step 0") {
		t.Errorf("without the cuBLAS that was asked for: %v\n%s", err, out)
	}
	contains(t, string(out), "libabsent.so.2", "plx: hint: install cuBLAS on this host")
	for _, flags := range [][]string{{"--device=auto"}, {"--device=cpu"}, nil} {
		cmd := exec.Command(program, append([]string{"--steps=2"}, flags...)...)
		cmd.Env = append(environ(), absent)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v without a gpu: %v\n%s", flags, err, out)
		}
	}
}

// If a GPU fails during the training, the program ends with a special exit
// status, and the error names the step and the operation.
func TestGPUFails(t *testing.T) {
	program := testhosts.Binary(t, "github.com/plx-run/plx/examples/mlp")
	d := cudatest.Start(t, cudatest.Options{Fault: 300, Faults: true})
	cmd := exec.Command(program, append(slices.Clone(gpuPrograms["mlp"]), "--device=gpu", "--niters=100", "--report-every=50")...)
	cmd.Env = append(append(environ(), "CUDA_VISIBLE_DEVICES=0"), d.Environment()...)
	out, err := cmd.CombinedOutput()
	failed := regexp.MustCompile(`plx: worker:0: step \d+: .*operations after it until .*CUDA_ERROR_ILLEGAL_ADDRESS`)
	if err == nil || cmd.ProcessState.ExitCode() != unusable || !failed.Match(out) || !strings.Contains(string(out), "plx: hint: ") {
		t.Errorf("%v, want status %d, the operations and a hint:\n%s", err, unusable, out)
	}
}
