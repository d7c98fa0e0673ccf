package gpuprobe

import (
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	const (
		first  = "GPU-7fdaf0a5-179b-f636-d15d-daf243e3ff16"
		big    = "MIG-feb88891-0321-5fef-9c87-d4af3b54259e"
		small  = "MIG-a25704ba-3a06-5299-a795-fd7cf4d13973"
		second = "GPU-d8594bd4-0fc3-8595-e355-7c98138f3b95"
		both   = big + " (3g.40gb of GPU 0), " + small + " (1g.10gb+me of GPU 0)"
		all    = both + ", " + second + " (GPU 1)"
		old    = "MIG-GPU-932bfb2c-849a-2a22-1e84-9eff6bc02b39/7/0"
	)
	for _, c := range []struct{ answer, names, labels, want string }{
		{"busy-570", "0,1", "0 1", ""},
		{"busy-570", "1", "1", ""},
		{"busy-570", "1,2,3", "", "no GPU 2, 3: the host has 0, 1"},
		{"no-gpu", "0", "", "no GPU 0: the host has none"},
		{"no-gpu", "GPU-1", "", "no GPU GPU-1: the host has none"},
		{"needs-reset-580", "0", "0", ""},
		{"needs-reset-580", "1", "", "GPU 1 cannot be used: GPU requires reset"},
		{"lost-520", "1", "", "GPU 1 cannot be used: nvidia-smi cannot reach it"},
		{"hung", "1", "", "no GPU 1: the host has 0 (nvidia-smi did not answer within 10s)"},
		{"mig-535", "MIG-fe," + small, "0:0 0:1", ""},
		{"mig-535", "MIG-", "", "MIG- can mean several GPUs, write more of the UUID: " + both},
		{"mig-535", "MIG-0", "", "no GPU MIG-0: the host has " + all},
		{"mig-535", "GPU-0,7", "", "no GPU GPU-0, 7: the host has " + all},
		{"mig-535", "0", "", "GPU 0 is in MIG mode, name its MIG devices instead: " + both},
		{"mig-535", first, "", "GPU 0 is in MIG mode, name its MIG devices instead: " + both},
		{"mig-535", second, "", "GPU 1 is in MIG mode and has no MIG devices: make some with nvidia-smi mig, or leave the GPU out"},
		{"mig-535", "MIG-fe,MIG-feb", "", "GPU 0:0 is named twice, as MIG-fe and as MIG-feb"},
		{"mig-old-names-460", old, "0:0", ""},
		{"mig-old-names-460", "MIG-GPU-9", "0:0", ""},
	} {
		found, err := answerOf(t, c.answer).Check(strings.Split(c.names, ","))
		got := ""
		if err != nil {
			got = err.Error()
		}
		var labels []string
		for _, d := range found {
			labels = append(labels, d.Label())
		}
		if got != c.want || strings.Join(labels, " ") != c.labels {
			t.Errorf("%s %s: got %q and %q, want %q", c.answer, c.names, labels, got, c.want)
		}
	}
	r := answerOf(t, "needs-reset-580")
	if got := r.lacks([]string{"4", "0", "1", "GPU-0"}); !slices.Equal(got, []string{"4", "GPU-0"}) {
		t.Errorf("lacks %v", got)
	}
	mute := Report{GPUTool: ToolHung, GPUError: "it is late"} // the tool hung, so it is unknown which GPUs the host has
	if _, err := mute.Check([]string{"0", "1"}); err == nil || err.Error() != "GPU 0, 1 was not found: it is late" {
		t.Errorf("without any list: %v", err)
	}
}

// A complete UUID matches only its own device, even if UUIDs of other devices
// begin with it.
func TestCompleteUUIDMatchesOnlyItsDevice(t *testing.T) {
	r := Report{GPUs: []GPU{{MIG: []MIG{{Index: 0, UUID: "MIG-GPU-1/7/10"}, {Index: 1, UUID: "MIG-GPU-1/7/1"}}}}}
	if found, err := r.Check([]string{"MIG-GPU-1/7/1"}); err != nil || found[0].Label() != "0:1" {
		t.Errorf("%+v, %v", found, err)
	}
}

// A process counts as using a MIG device only if nvidia-smi reports that.
func TestUsersOfMIG(t *testing.T) {
	r := answerOf(t, "mig-535")
	python := Process{PID: 34965, Name: "python", MemoryMiB: 14195}
	other := Process{PID: 7, MemoryMiB: Unknown}
	r.GPUs[0].add(r.GPUs[0].UUID, other)
	all := r.Devices()
	if users, busy := all[0].Users(); !busy || !slices.Equal(users, []Process{python}) {
		t.Errorf("the first device: %v, %v", users, busy)
	}
	if users, busy := all[1].Users(); busy || len(users) > 0 {
		t.Errorf("the second device: %v, %v", users, busy)
	}
	if left := r.GPUs[0].Unplaced(); !slices.Equal(left, []Process{other}) {
		t.Errorf("of no device: %v", left)
	}
}
