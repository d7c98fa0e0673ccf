package executor

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/device/cuda"
	"github.com/plx-run/plx/trainer/executor/gpu"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// testGPU opens the stand-in for a GPU, which runs the work of several streams
// in random order.
func testGPU(t *testing.T) *gpu.Device {
	t.Helper()
	return gpuWith(t, cudatest.Options{})
}

func gpuWith(t *testing.T, o cudatest.Options) *gpu.Device {
	t.Helper()
	_, d := startGPU(t, o)
	return d
}

func startGPU(t *testing.T, o cudatest.Options) (*cudatest.Driver, *gpu.Device) {
	t.Helper()
	stand := cudatest.Start(t, o)
	g, err := cuda.Open(0)
	check(t, err)
	d, err := gpu.On(g)
	check(t, err)
	check(t, d.ChooseProducts(stand.BLAS))
	return stand, d
}

// eagerGPU opens a stand-in for a GPU that runs all work at once, when it is
// put on a stream.
func eagerGPU(t *testing.T) *gpu.Device {
	t.Helper()
	return gpuWith(t, cudatest.Options{Eager: !cudatest.OnMachine()})
}

// onGPU runs a model three times on GPU d, and compares the results with the
// CPU's. It also compares them bit by bit with those of the GPU eager, which
// runs all work at once. The first run waits after each operation. onGPU
// returns the operations that have no GPU kernel.
func onGPU(t *testing.T, d, eager *gpu.Device, b build, dt tensor.Dtype, positive bool) []string {
	t.Helper()
	tolerance := 1e-12
	if dt == tensor.Float32 {
		tolerance = 1e-5
	}
	want := compiled(t, b, dt, 1, positive).run(t)
	s := compiledBy(t, func(g *gorgonia.ExprGraph, p Plan) (*Program, error) { return CompileOn(d, g, p) }, b, dt, 1, positive)
	exact := compiledBy(t, func(g *gorgonia.ExprGraph, p Plan) (*Program, error) { return CompileOn(eager, g, p) }, b, dt, 1, positive).run(t)
	for range 3 {
		got := s.run(t)
		same(t, got, want, tolerance)
		same(t, got, exact, 0)
	}
	m := s.program.machine.(*gpu.Machine)
	check(t, m.Close())
	return m.OnCPU()
}

// Every operation and its gradient give the same on a GPU as on the CPU.
func TestGPUZoo(t *testing.T) {
	d, eager := testGPU(t), eagerGPU(t)
	for _, e := range zoo {
		t.Run(e.name, func(t *testing.T) {
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
				if left := onGPU(t, d, eager, e.build, dt, e.positive); len(left) > 0 {
					t.Logf("%v: on the CPU: %v", dt, left)
				}
			}
		})
	}
}

// A model with layers, a loss and gradients gives the same on a GPU as on the
// CPU.
func TestGPUModel(t *testing.T) {
	d := testGPU(t)
	t.Log(onGPU(t, d, eagerGPU(t), mlp(7, 20, 33, 5), tensor.Float32, false))
}

// session on a GPU.
func sessionOn(t *testing.T, d *gpu.Device, b build) *session {
	t.Helper()
	return compiledBy(t, func(g *gorgonia.ExprGraph, p Plan) (*Program, error) { return CompileOn(d, g, p) }, b, tensor.Float32, 1, false)
}

// descend runs one training step of gradient descent. As soon as a gradient is
// ready, two goroutines each update one half of the variable, as two shard
// holders (parameter servers) would.
func (s *session) descend(t *testing.T) float64 {
	t.Helper()
	loss, err := s.program.Run(operation.Call{Train: true}, s.gradients, func(i int) {
		b, _ := memory.Raw(s.values[i])
		x, g := memory.View[float32](b), memory.View[float32](s.gradients[i])
		var renewing sync.WaitGroup
		for half := range 2 {
			renewing.Go(func() {
				from, to := half*len(x)/2, (half+1)*len(x)/2
				for k := from; k < to; k++ {
					x[k] -= 0.5 * g[k]
				}
				s.program.Renew(i, 4*from, 4*to)
			})
		}
		renewing.Wait()
	})
	check(t, err)
	return loss
}

// Renew may copy new values to a GPU during the run that computed the
// gradients. The losses equal the CPU's except for rounding. They equal, bit
// by bit, those of a GPU that runs all work at once, in whatever order the
// streams advance.
func TestGPURenewDuringRun(t *testing.T) {
	const steps = 6
	cpu := compiled(t, mlp(5, 7, 9, 4, 3), tensor.Float32, 1, false)
	exact := sessionOn(t, eagerGPU(t), mlp(5, 7, 9, 4, 3))
	var want, bits []float64
	for range steps {
		want, bits = append(want, cpu.descend(t)), append(bits, exact.descend(t))
	}
	if want[0] == want[steps-1] {
		t.Errorf("all losses are %v", want[0])
	}
	for _, seed := range []int{1, 2, 3} {
		s := sessionOn(t, gpuWith(t, cudatest.Options{Seed: seed}), mlp(5, 7, 9, 4, 3))
		for step := range steps {
			if got := s.descend(t); got != bits[step] || math.Abs(got-want[step]) > 1e-5 {
				t.Errorf("seed %d: loss %d is %v, want %v as with one stream, about %v as the CPU", seed, step, got, bits[step], want[step])
			}
		}
		check(t, s.program.machine.(*gpu.Machine).Close())
	}
}

// launches returns the number of kernels that one run of the model launches.
func launches(s *session) int { return len(s.program.compiled.Instructions) }

// A fault of the GPU makes the run return an error. In the first run the error
// names the operation that failed; in a later run it names the range of
// operations that contains it.
func TestGPUFaultNamesOperation(t *testing.T) {
	n := launches(compiled(t, mlp(3, 4, 5, 2), tensor.Float32, 1, false))
	for _, c := range []struct {
		at   int
		want string
	}{{2, "(kernel unary_tanh_f32)"}, {n + 3, "operations after it"}} {
		s := sessionOn(t, gpuWith(t, cudatest.Options{Fault: c.at, Faults: true}), mlp(3, 4, 5, 2))
		var err error
		for range 3 {
			if _, err = s.program.Run(operation.Call{Train: true}, s.gradients, nil); err != nil {
				break
			}
		}
		var refused *device.Error
		if !errors.As(err, &refused) || refused.Code != device.IllegalAddress || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the fault in launch %d: %v; want %q and code %d", c.at, err, c.want, device.IllegalAddress)
		}
	}
}

// A run on a GPU that does not answer any more fails within the device's
// Patience.
func TestStuckGPUFailsRunInTime(t *testing.T) {
	for _, after := range []int{30, 60, 120} {
		d := gpuWith(t, cudatest.Options{Stuck: after})
		d.Patience = 100 * time.Millisecond
		s := sessionOn(t, d, mlp(3, 4, 5, 2))
		var err error
		for range 5 {
			if _, err = s.program.Run(operation.Call{Train: true}, s.gradients, nil); err != nil {
				break
			}
		}
		var late *device.TimeoutError
		if !errors.As(err, &late) {
			t.Errorf("stuck after %d pieces of work: %v", after, err)
		}
	}
}

// The error for a program that does not fit into the GPU's memory names the
// largest values.
func TestGPUMemoryErrorNamesLargestValues(t *testing.T) {
	d := gpuWith(t, cudatest.Options{Memory: 64 << 10})
	g := gorgonia.NewGraph()
	m := mlp(64, 300, 200, 10)(g, tensor.Float32)
	_, err := CompileOn(d, g, Plan{Inputs: m.inputs, Fixed: m.variables, FixedValues: values(m.variables, 1, false), Loss: m.loss, Differentiate: m.variables})
	var full *gpu.MemoryError
	if !errors.As(err, &full) || !strings.Contains(err.Error(), "w0") || full.Free != 64<<10 || full.Want <= full.Free {
		t.Errorf("the error is %v", err)
	}
}
