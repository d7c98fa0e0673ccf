package launcher

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/placement"
)

// For a program that links plx's trainer, the plan shows on which device each
// worker computes, and notes which workers the trainer will reject.
func TestComputesOn(t *testing.T) {
	probed := &gpuprobe.Report{GPUTool: gpuprobe.ToolSMI, GPUs: []gpuprobe.GPU{{Index: 0, Name: "Tesla V100"}, {Index: 1}}}
	amd := &gpuprobe.Report{GPUTool: gpuprobe.ToolROCm, Vendor: gpuprobe.AMD, GPUs: probed.GPUs}
	for _, c := range []struct {
		hosts, args string
		report      *gpuprobe.Report
		foreign     bool
		want        []string // the last column of the table: "" for a server
		note        string   // part of it
	}{
		{"a: 0,1", "", probed, false, []string{"", "gpu 0 (Tesla V100)", "gpu 1"}, ""},
		{"a: 0,1", "", nil, false, []string{"", "gpu 0", "gpu 1"}, ""},
		{"a: 0,1", "--device cpu", probed, false, []string{"", "cpu", "cpu"}, ""},
		{"a: 0,1", "-x --device=gpu -device=cpu", probed, false, []string{"", "cpu", "cpu"}, ""},
		{"a: cpu", "--device auto", probed, false, []string{"", "cpu"}, ""},
		{"a: cpu", "--device gpu", probed, false, []string{"", "-"}, "worker:0 on a has no gpu that plx's trainer can use"},
		{"b: cpu\na: 0", "", probed, false, []string{"", "cpu", "", "gpu 0 (Tesla V100)"}, "worker:1 on a computes on a gpu and worker:0 on b on the cpu"},
		{"b: cpu\na: 0", "--device cpu", probed, false, []string{"", "cpu", "", "cpu"}, ""},
		{"b: cpu\na", "", nil, false, []string{"", "cpu", "", "each GPU found there"}, ""},
		{"b: cpu\na: 0", "", probed, true, nil, ""},
		// Report a4: GPUs of AMD.
		{"a: 0", "", amd, false, []string{"", "cpu"}, "note: host a: plx's trainer does not compute on GPUs of AMD: the workers there compute on the CPU"},
		{"a: 0", "--device gpu", amd, false, []string{"", "-"}, "worker:0 on a has no gpu that plx's trainer can use"},
		{"a: 0", "--device cpu", amd, false, []string{"", "cpu"}, ""},
		{"a: 0", "", amd, true, nil, ""},
	} {
		t.Run(fmt.Sprint(c.hosts, " ", c.args), func(t *testing.T) {
			hosts, err := hostfile.ParseLines(strings.Split(c.hosts, "\n"))
			if err != nil {
				t.Fatal(err)
			}
			var machines []placement.Machine
			for _, h := range hosts {
				machines = append(machines, placement.Machine{Host: h, Report: c.report})
			}
			p, err := placement.Place(machines, placement.Options{})
			if err != nil {
				t.Fatal(err)
			}
			device := trainerDevice(strings.Fields(c.args), c.foreign)
			plan := planTable(device, machines, p)
			at := strings.Index(plan[0], "COMPUTES ON")
			if (at < 0) != c.foreign {
				t.Fatalf("the head of the plan: %s", plan[0])
			}
			var got []string
			for _, line := range plan[1:] {
				if at >= 0 {
					got = append(got, strings.TrimSpace(line[min(at, len(line)):]))
				}
			}
			notes := strings.Join(deviceNotes(device, machines, p), "\n")
			if !slices.Equal(got, c.want) || (notes == "") != (c.note == "") || !strings.Contains(notes, c.note) {
				t.Errorf("%q, want %q; %s", got, c.want, notes)
			}
		})
	}
}
