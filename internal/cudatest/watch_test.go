package cudatest_test

import (
	"encoding/binary"
	"math"
	"os/exec"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/cudatest"
	"github.com/plx-run/plx/internal/patience"
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/device/cuda"
)

// ones are n float32 of 1.
func ones(n int) (b []byte) {
	for range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(1))
	}
	return b
}

// The tools of valgrind find a planted fault of each kind, and nothing in a kernel that
// is right.
func TestPlantedFaults(t *testing.T) {
	for _, c := range []struct{ kernel, tool, want string }{
		{"right", cudatest.Helgrind, ""},
		{"right", cudatest.Memcheck, ""},
		{"missing_barrier", cudatest.Helgrind, "Possible data race"},
		{"wrong_address", cudatest.Memcheck, "Invalid write of size 4"},
		{"unset_value", cudatest.Memcheck, "depends on uninitialised value"},
	} {
		t.Run(c.kernel+" "+c.tool, func(t *testing.T) {
			t.Parallel()
			const blocks = 2
			call := cudatest.Call{
				Operands: [][]byte{nil, ones(64 * blocks)}, Sizes: []int{4 * 64 * blocks, 4 * 64 * blocks},
				Launches: []cudatest.Launch{{Kernel: c.kernel, Grid: [3]uint32{blocks, 1, 1}, Block: [3]uint32{64, 1, 1}, Pointers: []int{0, 1}}},
			}
			if c.kernel == "right" {
				call.Sizes[0] = 4 * blocks
				call.Results = [][]byte{{0, 0, 128, 66, 0, 0, 128, 66}} // 64
			}
			var r cudatest.Recording
			r.Add(call)
			err := cudatest.Watch(t, &r, c.tool)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A result that is not the recorded one is found too.
func TestWrongResult(t *testing.T) {
	var r cudatest.Recording
	r.Add(cudatest.Call{Operands: [][]byte{ones(1)}, Sizes: []int{4}, Results: [][]byte{{1, 2, 3, 4}}})
	if err := cudatest.Watch(t, &r, cudatest.Memcheck); err == nil || !strings.Contains(err.Error(), "1 wrong results") {
		t.Errorf("got %v", err)
	}
}

// The stand-in itself finds threads that do not meet at a barrier, and writes around
// allocated memory.
func TestFaultsOfTheStandIn(t *testing.T) {
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("there is no C++ compiler: ", err)
	}
	for kernel, want := range map[string]string{
		"early_end":     "early_end: some threads of a block wait at a barrier, and others have ended",
		"no_memory":     "no_memory: an address where no memory is",
		"wrong_address": "wrong_address: it has written outside of allocated memory",
	} {
		d := cudatest.Start(t, cudatest.Options{Faults: true})
		g, err := cuda.Open(0)
		must(t, err)
		m, err := g.Load("\n.version 6.0\n.entry " + kernel + "(")
		must(t, err)
		k, err := m.Kernel(kernel)
		must(t, err)
		p, err := g.Alloc(4 * 64)
		must(t, err)
		s, err := g.NewStream()
		must(t, err)
		e, err := g.NewEvent()
		must(t, err)
		params := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(p)), uint64(p))
		must(t, s.Launch(k, device.Shape{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{64, 1, 1}}, params))
		must(t, s.Record(e))
		if err := device.Await(e, patience.Limit); err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_ILLEGAL_ADDRESS") {
			t.Errorf("%s: %v", kernel, err)
		}
		if got := strings.Join(d.Faults(), "\n"); got != want {
			t.Errorf("%s: %q, want %q", kernel, got, want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
