//go:build linux && (amd64 || arm64)

package cuda

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// faulty opens a GPU for a test that makes the GPU fail. A fault on a real GPU
// ends all GPU work of the process, so internal/tools/gpucheck runs each of
// these tests in a process of its own.
func faulty(t *testing.T) (device.GPU, device.Stream, device.Event) {
	t.Helper()
	cudatest.Start(t, cudatest.Options{Faults: !cudatest.OnMachine()})
	g, err := Open(0)
	must(t, err)
	s, err := g.NewStream()
	must(t, err)
	done, err := g.NewEvent()
	must(t, err)
	return g, s, done
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// launch launches the first kernel of an operation.
func launch(t *testing.T, g device.GPU, s device.Stream, o kernels.Operation, times int, params []byte) {
	t.Helper()
	l := o.Launches[0]
	for _, m := range kernels.Modules() {
		if m.Name == l.Module {
			loaded, err := g.Load(m.PTX)
			must(t, err)
			k, err := loaded.Kernel(l.Kernel)
			must(t, err)
			for range times {
				must(t, s.Launch(k, device.Shape{Grid: l.Grid, Block: l.Block}, params))
			}
		}
	}
}

// After a write where no memory is, the wait and every later call fail with the
// driver's code for that.
func TestFaultIllegalAddress(t *testing.T) {
	g, s, done := faulty(t)
	o, err := kernels.Fill(kernels.Float32, 1, 1)
	must(t, err)
	launch(t, g, s, o, 1, o.Launches[0].Params(16))
	must(t, s.Record(done))
	waited := device.Await(done, time.Minute)
	_, later := g.Alloc(256)
	for what, err := range map[string]error{"the wait for a write to address 16": waited, "a later call": later} {
		var refused *device.Error
		if !errors.As(err, &refused) || refused.Code != device.IllegalAddress {
			t.Errorf("%s returned %v, want error %d", what, err, device.IllegalAddress)
		}
	}
}

// A wait for minutes of work, sums in which one thread adds the same number again and
// again, ends after its limit.
func TestFaultEndlessWork(t *testing.T) {
	g, s, done := faulty(t)
	terms, limit := uint32(1<<31-1), 2*time.Second
	if testing.Short() || !cudatest.OnMachine() { // for the stand-in
		terms, limit = 2_000_000, 20*time.Millisecond
	}
	at, err := g.Alloc(256)
	must(t, err)
	o, err := kernels.Sum(kernels.Float32, []int{4}, nil)
	must(t, err)
	// After three pointers the kernel takes these numbers: see REDUCED in reduce.cu.
	var params []byte
	for range 3 {
		params = binary.LittleEndian.AppendUint64(params, uint64(at))
	}
	for _, n := range []uint32{1, 1, 1, 0, 0, 0, terms, 1, 1, 0, 0, 0, 1, 0, 1, terms} {
		params = binary.LittleEndian.AppendUint32(params, n)
	}
	launch(t, g, s, o, 100, params)
	must(t, s.Record(done))
	begin, late := time.Now(), (*device.TimeoutError)(nil)
	if err := device.Await(done, limit); !errors.As(err, &late) {
		t.Errorf("a wait of %v for endless work returned %v", limit, err)
	}
	if waited := time.Since(begin); waited > limit+10*time.Second {
		t.Errorf("a wait of %v for endless work took %v", limit, waited)
	}
}
