package cudatest_test

import (
	"encoding/binary"
	"os/exec"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/device/cuda"
)

// The stand-in for the driver must detect threads that do not reach the same
// barrier, and writes around allocated memory.
func TestStandInDetectsFaults(t *testing.T) {
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
