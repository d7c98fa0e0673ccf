//go:build long

package e2e

import (
	"syscall"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// A GPU that is named by its UUID stays assigned when the machine renumbers
// its GPUs. Different MIG devices of one GPU can be assigned to different
// jobs.
func TestGPUsByUUID(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1, GPUs: []int{1}})
	const (
		a = "GPU-02ba5a4d-8cb4-f0a5-2a8f-1f4f3c0a1b2d"
		c = "GPU-d6de6afc-bdfe-75c4-5273-0544439153fc"
		m = "MIG-feb88891-0321-5fef-9c87-d4af3b54259e"
		n = "MIG-a25704ba-3a06-5299-a795-fd7cf4d13973"
	)
	gpu := func(index, uuid, mode string) string {
		return "gpu " + index + "|" + uuid + "|NVIDIA A100|0000:0" + index + ":00.0|40536|11|0|Default|" + mode + "|8.0"
	}
	reversed := []string{gpu("0", c, "Disabled"), gpu("1", a, "Disabled")}
	divided := []string{gpu("0", a, "Disabled"), gpu("1", c, "Enabled"), "mig 1|0|3g.40gb|" + m, "mig 1|1|1g.10gb|" + n}
	gpus := func(facts []string) {
		b.Hosts[0].SetGPUs(0, append([]string{"mode ok", "driver 535.216.01"}, facts...)...)
	}
	see := func(device string, args ...string) {
		t.Helper()
		script := b.script("see", `echo "sees $CUDA_VISIBLE_DEVICES"`)
		res := b.want(0, append(append([]string{"launch", "--ps", "none"}, args...), script)...)
		contains(t, res.stdout, "sees "+device+"\n")
	}
	gpus(reversed)
	see(a, "--host", "h1: GPU-02b")
	see("1", "--host", "h1: 1")
	gpus(divided)
	see(a, "--host", "h1: GPU-02b")
	see(m, "--host", "h1", "--include", "h1:MIG-f")
	b.says(b.want(125, "launch", "--ps", "none", "--host", "h1: GPU-f", "true"), "--host:1: host h1: no GPU GPU-f: the host has "+a+" (GPU 0), "+m+" (3g.40gb of GPU 1)")
	b.says(b.want(125, "launch", "--ps", "none", "--host", "h1: 1", "true"), "--host:1: host h1: GPU 1 is in MIG mode, name its MIG devices instead: "+m)
	r := b.start(brief(b.ResourceFile("h1: "+m), b.script("task", patient))...)
	r.up("worker:0")
	b.says(b.want(125, "launch", "--ps", "none", "--host", "h1: MIG-f", "true"), "host h1: gpu 1:0: MIG device "+m+" is reserved by job task-")
	see(n, "--host", "h1: MIG-a")
	gpus(reversed) // the GPU leaves MIG mode while the job still uses its MIG device
	b.says(b.want(125, "launch", "--ps", "none", "--host", "h1: 0", "true"), "gpu 0: GPU "+c+" is reserved by job task-")
	r.signal(syscall.SIGTERM)
	r.wait()
	see(c, "--host", "h1: GPU-d6de6afc")
}
