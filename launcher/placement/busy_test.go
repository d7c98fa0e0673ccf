package placement

import (
	"slices"
	"testing"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/protocol"
)

// Busy reports only GPUs that get a worker, and names the users of the
// processes on them.
func TestBusy(t *testing.T) {
	ms := machines(t, `
		a: 1,2 | 0 1 2 3
		b      | 0 1
		c: cpu | 0
		d      | 0
		e: 0   | 0`)
	use := func(m, gpu int, processes ...gpuprobe.Process) {
		g := &ms[m].Report.GPUs[gpu]
		g.Busy, g.Processes = true, processes
	}
	alice := gpuprobe.Process{PID: 7, User: "alice", Name: "python", MemoryMiB: 500}
	use(0, 0, alice)
	use(0, 1, alice, gpuprobe.Process{PID: 8, MemoryMiB: gpuprobe.Unknown})
	use(0, 2)
	ms[0].Report.GPUs[2].MemoryUsedMiB = 20000
	use(1, 1, alice, alice, alice, alice, alice, alice)
	use(2, 0, alice)
	use(4, 0, alice) // -n leaves it out
	p, err := Place(ms, Options{Workers: 6})
	if err != nil {
		t.Fatal(err)
	}
	const python = "python of alice (pid 7, 500 MiB)"
	want := []string{
		"host a: GPU 1 by " + python + ", a process of an unknown user (pid 8, memory not known); " +
			"GPU 2 by processes that the host does not show (20000 MiB in use)",
		"host b: GPU 1 by " + python + ", " + python + ", " + python + ", " + python + ", 2 more",
	}
	if got := p.Busy(ms); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A GPU is reserved by its UUID, or by its PCI address if the UUID is unknown.
// If both are unknown, it is not reserved.
func TestClaims(t *testing.T) {
	ms := machines(t, `
		a: 2,0,1 | 0 1 2
		b: cpu   | 0`)
	gpus := ms[0].Report.GPUs
	gpus[0].UUID, gpus[0].PCIBusID, gpus[1].PCIBusID = "GPU-0", "0000:01:00.0", "0000:02:00.0"
	for _, shared := range []bool{false, true} {
		p, err := Place(ms, Options{ShareGPUs: shared})
		if err != nil {
			t.Fatal(err)
		}
		want := []protocol.Claim{{Device: "GPU-0", Name: "gpu 0", Shared: shared}, {Device: "0000:02:00.0", Name: "gpu 1", Shared: shared}}
		if got := protocol.Claims(p.Hosts[0].Specs()); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if got := protocol.Claims(p.Hosts[1].Specs()); len(got) > 0 {
			t.Errorf("a worker without a GPU books %v", got)
		}
	}
}
