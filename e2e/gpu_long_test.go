//go:build long

package e2e

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// largeGPUPrograms are examples that take long on the stand-in for a GPU.
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

// With cuBLAS too, two workers end with the same bits as one worker.
func TestGPUWorkersWithCuBLAS(t *testing.T) {
	trainOnGPUs(t, "mlp", gpuPrograms["mlp"], cudatest.Options{BLAS: &cudatest.BLAS{}}, "cuBLAS 12.4.5 (libcublas.so.12)", "allreduce")
}

// If its workers cannot use their GPUs, a job ends with the exit status of a
// worker. Either all workers compute on GPUs or none.
func TestGPUJobRefused(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 2, GPUs: []int{1, 1}})
	program := testhosts.Binary(t, "github.com/plx-run/plx/examples/linear")
	absent := []string{"PLX_CUDA=libabsent.so.1"}
	launch := func(code int, env []string, line1, line2 string, flags ...string) result {
		args := []string{"launch", "-v", "--hosts", b.ResourceFile(line1, line2)}
		for _, v := range env {
			args = append(args, "--env", v)
		}
		return b.want(code, append(append(args, program, "--steps=2"), flags...)...)
	}
	res := launch(unusable, absent, "h1: 0", "h2: 0")
	contains(t, res.stderr, "gpu 0 (Tesla V100-SXM3-32GB)", "gpu 0 (Quadro RTX 4000)", "the worker was given gpu 0 and cannot use it: open NVIDIA's driver", "plx: hint: install NVIDIA's driver on this host, or train with --device cpu")
	if strings.Contains(res.stdout, "step 0") {
		t.Errorf("it trained:\n%s", res.stdout)
	}
	launch(0, absent, "h1: 0", "h2: 0", "--device=cpu")
	res = launch(2, absent, "h1: cpu", "h2: cpu", "--device=gpu")
	contains(t, res.stderr, "note: worker:0 on h1 has no gpu", "--device gpu: the worker was given no gpu", "plx: hint: give each worker a gpu")
	res = launch(1, cudatest.Start(t, cudatest.Options{Folder: b.shared()}).Environment(), "h1: 0", "h2: cpu")
	contains(t, res.stderr, "note: worker:0 on h1 computes on a gpu and worker:1 on h2 on the cpu", "give every worker a gpu in the resource file, or train with --device cpu")
	b.hostsGone(0)
}
