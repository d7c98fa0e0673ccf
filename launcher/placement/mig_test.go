package placement

import (
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/protocol"
)

// divided returns a host whose GPU 0 is in MIG mode and has two MIG devices.
func divided(t *testing.T, line string) []Machine {
	t.Helper()
	hosts, err := hostfile.ParseLines([]string{line})
	if err != nil {
		t.Fatal(err)
	}
	return []Machine{{Host: hosts[0], Report: &gpuprobe.Report{GPUs: []gpuprobe.GPU{
		{Index: 0, UUID: "GPU-a0", Busy: true, MIGMode: true, MIG: []gpuprobe.MIG{{Index: 0, UUID: "MIG-00", Profile: "3g"}, {Index: 1, UUID: "MIG-01", Profile: "1g"}}},
		{Index: 1, UUID: "GPU-a1"}, {Index: 2, UUID: "GPU-b2"},
	}}}}
}

func TestUUIDsAndMIG(t *testing.T) {
	const devices = "MIG-00 (3g of GPU 0), MIG-01 (1g of GPU 0)"
	for _, c := range []struct {
		line        string
		host        bool // Options.VisibleHost
		plan, wrong string
	}{
		{"h: GPU-b2,GPU-A1", false, "(gpu2,GPU-b2,0) (gpu1,GPU-a1,1)", ""},
		{"h: GPU-b,1", false, "(gpu2,GPU-b2,0) (gpu1,1,1)", ""},
		{"h: GPU-b,1", true, "(gpu2,GPU-b2,GPU-a1,0) (gpu1,GPU-b2,GPU-a1,1)", ""},
		{"h: 2,1", true, "(gpu2,2,1,0) (gpu1,2,1,1)", ""},
		{"h: MIG-01,GPU-b", false, "(gpu0:1,MIG-01,0) (gpu2,GPU-b2,1)", ""},
		{"h: MIG-01,MIG-00", true, "(gpu0:1,MIG-01,0) (gpu0:0,MIG-00,1)", ""},
		{"h", false, "(gpu0:0,MIG-00,0) (gpu0:1,MIG-01,1) (gpu1,1,2) (gpu2,2,3)", ""},
		{"h exclude=0", false, "(gpu1,1,0) (gpu2,2,1)", ""},
		{"h exclude=GPU-a0,2", false, "(gpu1,1,0)", ""},
		{"h exclude=MIG-00,GPU-b", false, "(gpu0:1,MIG-01,0) (gpu1,1,1)", ""},
		{"h exclude=0,1,2", false, "", "--host:1: host h: every GPU found there is excluded"},
		{"h exclude=GPU-c", false, "", "--host:1: host h: no GPU GPU-c: the host has " + devices + ", GPU-a1 (GPU 1), GPU-b2 (GPU 2), so it cannot be excluded"},
		{"h exclude=GPU-a", false, "", "GPU-a can mean several GPUs"},
		{"h: GPU-a", false, "", "--host:1: host h: GPU-a can mean several GPUs, write more of the UUID: GPU-a0 (GPU 0), GPU-a1 (GPU 1)"},
		{"h: GPU-b,2", false, "", "--host:1: host h: GPU 2 is named twice, as GPU-b and as 2"},
		{"h: 1,0", false, "", "--host:1: host h: GPU 0 is in MIG mode, name its MIG devices instead: " + devices},
		{"h slots=2", false, "", "GPU 0 is in MIG mode"},
	} {
		ms := divided(t, c.line)
		p, err := Place(ms, Options{NoServers: true, VisibleHost: c.host})
		got := strings.TrimPrefix(strings.TrimSpace(plan(ms, p)), "h: ")
		for i := range 4 {
			got = strings.ReplaceAll(got, "worker:"+string(rune('0'+i)), "")
		}
		if got != c.plan || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: got %s, %v\nwant %s%s", c.line, got, err, c.plan, c.wrong)
		}
		if unmet := ms[0].Unmet(); err != nil && ms[0].Devices.Kind == hostfile.GPUs && (unmet == nil || unmet.Error() != err.Error()) {
			t.Errorf("%s: plx probe says %v", c.line, unmet)
		}
	}
}

// If the host was not probed, a UUID is shown as the resource file has it.
func TestUUIDIsShownAsWrittenWithoutProbe(t *testing.T) {
	ms := divided(t, "h: GPU-b,0")
	ms[0].Report = nil
	p, err := Place(ms, Options{NoServers: true})
	if got := plan(ms, p); err != nil || got != "h: worker:0(gpuGPU-b,GPU-b,0) worker:1(gpu0,0,1)\n" {
		t.Errorf("%s, %v", got, err)
	}
}

// A MIG device is reserved together with a share of its GPU. It is busy if a
// process is known to use it.
func TestMIGClaimsAndUse(t *testing.T) {
	ms := divided(t, "h: MIG-01,GPU-b")
	p, err := Place(ms, Options{VisibleHost: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []protocol.Claim{{Device: "MIG-01", Name: "gpu 0:1", Whole: "GPU-a0"}, {Device: "GPU-b2", Name: "gpu 2"}}
	if got := protocol.Claims(p.Hosts[0].Specs()); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	g := &ms[0].Report.GPUs[0]
	known, unplaced := gpuprobe.Process{PID: 7, Name: "python", User: "alice", MemoryMiB: 5}, gpuprobe.Process{PID: 8, Name: "java", User: "bob", MemoryMiB: 6}
	g.MIG[0].Processes = []gpuprobe.Process{known}
	g.Processes = []gpuprobe.Process{known, unplaced}
	if got := p.Busy(ms); len(got) > 0 {
		t.Errorf("the other MIG device is busy: %v", got)
	}
	if got := p.Notes(ms, Options{VisibleHost: true}); !slices.Equal(got, []string{"note: host h: nvidia-smi does not report which MIG devices of GPU 0 these use: java of bob (pid 8, 6 MiB)"}) {
		t.Errorf("notes: %q", got)
	}
	g.MIG[1].Processes = []gpuprobe.Process{unplaced}
	if got := p.Busy(ms); !slices.Equal(got, []string{"host h: GPU 0:1 by java of bob (pid 8, 6 MiB)"}) {
		t.Errorf("busy: %q", got)
	}
	both := divided(t, "h: MIG-01,MIG-00")
	if p, err = Place(both, Options{VisibleHost: true}); err != nil {
		t.Fatal(err)
	}
	if got := p.Notes(both, Options{VisibleHost: true}); len(got) != 1 || !strings.Contains(got[0], "each worker sees its own MIG device only") {
		t.Errorf("notes: %q", got)
	}
}

// AMD GPUs can be selected by index and by UUID, and for all workers of a
// host. Workers see them under the ids of AMD's runtime.
func TestReportA4AMDDevices(t *testing.T) {
	report := &gpuprobe.Report{Vendor: gpuprobe.AMD, GPUTool: gpuprobe.ToolROCm, GPUs: []gpuprobe.GPU{
		{Index: 0, UUID: "GPU-9c1d2e3f4a5b6c7d", RuntimeID: "1"},
		{Index: 1, UUID: "GPU-1122334455667788", RuntimeID: "0"},
		{Index: 2, PCIBusID: "0000:c6:00.0"},
	}}
	for _, c := range []struct {
		line    string
		host    bool
		want    string
		claimed string
	}{
		{"h: 0", false, "gpu 0 ROCR_VISIBLE_DEVICES=1 HIP_VISIBLE_DEVICES=0 CUDA_VISIBLE_DEVICES=0 PLX_GPU_VENDOR=AMD", "GPU-9c1d2e3f4a5b6c7d"},
		{"h: GPU-1122", false, "gpu 1 ROCR_VISIBLE_DEVICES=GPU-1122334455667788 HIP_VISIBLE_DEVICES=0 CUDA_VISIBLE_DEVICES=0 PLX_GPU_VENDOR=AMD", "GPU-1122334455667788"},
		{"h exclude=0,1", false, "gpu 2 ROCR_VISIBLE_DEVICES=2 HIP_VISIBLE_DEVICES=0 CUDA_VISIBLE_DEVICES=0 PLX_GPU_VENDOR=AMD", "0000:c6:00.0"},
		{"h exclude=2", true, "gpu 0 ROCR_VISIBLE_DEVICES=1,0 HIP_VISIBLE_DEVICES=0,1 CUDA_VISIBLE_DEVICES=0,1 PLX_GPU_VENDOR=AMD", "GPU-9c1d2e3f4a5b6c7d"},
		{"h: cpu", false, "cpu CUDA_VISIBLE_DEVICES= ROCR_VISIBLE_DEVICES= HIP_VISIBLE_DEVICES=", ""},
	} {
		lines, err := hostfile.ParseLines([]string{c.line})
		if err != nil {
			t.Fatal(err)
		}
		p, err := Place([]Machine{{Host: lines[0], Report: report}}, Options{NoServers: true, VisibleHost: c.host})
		if err != nil {
			t.Fatalf("%s: %v", c.line, err)
		}
		first, claimed := p.Hosts[0].Specs()[0], ""
		if len(first.Claims) > 0 {
			claimed = first.Claims[0].Device
		}
		if got := p.Hosts[0].Tasks[0].Device + " " + strings.Join(first.Variables(), " "); got != c.want || claimed != c.claimed {
			t.Errorf("%s: %s, books %q", c.line, got, claimed)
		}
	}
}
