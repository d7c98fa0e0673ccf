package doctor

import (
	"errors"
	"strings"
	"testing"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/provision"
)

// Each finding on Python has its own remedy. Package provision judges what was imported.
func TestPythonFindings(t *testing.T) {
	v := &visit{Target: &provision.Target{}, notes: notes{host: "h"}}
	v.unimported(errors.New("python3: not found"))
	v.Python = &provision.Imported{Module: "torch", Error: "ImportError: no"}
	v.unimported(errors.New("import torch: ImportError: no"))
	if got := words(v.all); got != "error python: python3: not found\nerror python: import torch: ImportError: no" ||
		!strings.HasPrefix(v.all[0].Remedy, "install python3 there") || !strings.HasPrefix(v.all[1].Remedy, "install it there") {
		t.Errorf("%q: %+v", got, v.all)
	}
}

func TestGPUWorkers(t *testing.T) {
	one := gpuprobe.Report{GPUTool: gpuprobe.ToolSMI, Driver: "470.1", GPUs: []gpuprobe.GPU{{Index: 0}}}
	for line, want := range map[string]int{"h": 1, "h: 0": 1, "h: cpu": 0, "h: ps": 0} {
		lines, err := hostfile.ParseLines([]string{line})
		if err != nil {
			t.Fatal(err)
		}
		if got := gpuWorkers(placement.Machine{Host: lines[0], Report: &one}); got != want {
			t.Errorf("%s: %d, want %d", line, got, want)
		}
	}
}

func TestComparePython(t *testing.T) {
	with := func(name, python, torch string) HostFacts {
		return HostFacts{Host: name, Python: &provision.Imported{Python: python, Torch: torch}}
	}
	got := words(compare([]HostFacts{with("h1", "3.11.2", "2.1"), with("h2", "3.11.9", "2.1"), with("h3", "3.9.1", "2.0"), with("h4", "", ""), {Host: "h5"}}))
	want := "warning python: python3 is not the same everywhere: 3.11 (h[1-2]), 3.9 (h3)\nwarning python: torch is not the same everywhere: 2.1 (h[1-2]), 2.0 (h3)"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := words(compare([]HostFacts{with("h1", "3.11.2", ""), with("h2", "3.11.9", "")})); got != "" {
		t.Errorf("patches of one version: %q", got)
	}
}

// A long error text of a host is cut, so that it cannot fill the screen.
func TestLongTextsAreCut(t *testing.T) {
	n := notes{host: "h"}
	n.addError(Python, errors.New(strings.Repeat("é", 10000)), "install it there")
	long := healthy()
	long.User, long.Processes.Soft = strings.Repeat("x", 10000), 1
	n.judge(long)
	for _, f := range append(n.all, compare([]HostFacts{
		{Host: "h1", Python: &provision.Imported{Torch: strings.Repeat("x", 10000)}}, {Host: "h2", Python: &provision.Imported{Torch: "2"}}})...) {
		if len(f.Text) > 1100 {
			t.Errorf("%d bytes: %.80s", len(f.Text), f.Text)
		}
	}
	if len(n.all) != 2 {
		t.Errorf("%d findings", len(n.all))
	}
}
