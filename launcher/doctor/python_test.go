package doctor

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/provision"
)

func TestJudgePython(t *testing.T) {
	one := gpuprobe.Report{GPUTool: gpuprobe.ToolSMI, Driver: "470.1", GPUs: []gpuprobe.GPU{{Index: 0}}}
	for _, c := range []struct {
		line string
		got  provision.Imported
		want string
	}{
		{"h", provision.Imported{Python: "3.11.2"}, ""},
		{"h", provision.Imported{Module: "torch", Error: "ImportError: no"}, "error python: import torch: ImportError: no"},
		{"h", provision.Imported{Torch: "2.1"}, "warning python: torch 2.1 is built for CPUs only, and workers have GPUs"},
		{"h: cpu", provision.Imported{Torch: "2.1"}, ""},
		{"h: ps", provision.Imported{Torch: "2.1"}, ""},
		{"h: 0", provision.Imported{Torch: "2.1", CUDA: "12.1"},
			"error python: torch 2.1 is built for CUDA 12.1, which needs NVIDIA driver 525.60.13 or later, and the driver is 470.1"},
	} {
		lines, err := hostfile.ParseLines([]string{c.line})
		if err != nil {
			t.Fatal(err)
		}
		n := notes{host: "h"}
		n.judgePython(c.got, placement.Machine{Host: lines[0], Report: &one})
		if got := words(n.all); got != c.want {
			t.Errorf("%s %+v: %q, want %q", c.line, c.got, got, c.want)
		}
	}
}

func TestComparePython(t *testing.T) {
	with := func(name, python, torch string) HostFacts {
		return HostFacts{Host: name, Python: &provision.Imported{Python: python, Torch: torch}}
	}
	got := words(comparePython([]HostFacts{with("h1", "3.11.2", "2.1"), with("h2", "3.11.9", "2.1"), with("h3", "3.9.1", "2.0"), with("h4", "", ""), {Host: "h5"}}))
	want := "warning python: python3 is not the same everywhere: 3.11 (h[1-2]), 3.9 (h3)\nwarning python: torch is not the same everywhere: 2.1 (h[1-2]), 2.0 (h3)"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := words(comparePython([]HostFacts{with("h1", "3.11.2", ""), with("h2", "3.11.9", "")})); got != "" {
		t.Errorf("patches of one version: %q", got)
	}
}

// A host cannot fill the screen.
func TestTextsAreBounded(t *testing.T) {
	n := notes{host: "h"}
	n.judgePython(provision.Imported{Module: "m", Error: strings.Repeat("é", 10000)}, placement.Machine{Report: &gpuprobe.Report{}})
	long := healthy()
	long.User, long.Processes.Soft = strings.Repeat("x", 10000), 1
	n.judge(long)
	for _, f := range append(n.all, comparePython([]HostFacts{
		{Host: "h1", Python: &provision.Imported{Torch: strings.Repeat("x", 10000)}}, {Host: "h2", Python: &provision.Imported{Torch: "2"}}})...) {
		if len(f.Text) > 1100 {
			t.Errorf("%d bytes: %.80s", len(f.Text), f.Text)
		}
	}
	if len(n.all) != 2 {
		t.Errorf("%d findings", len(n.all))
	}
}
