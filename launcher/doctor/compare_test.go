package doctor

import (
	"bytes"
	"strings"
	"testing"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/placement"
)

// host returns the facts of a host without problems, modified by change.
func host(name string, change func(*HostFacts)) HostFacts {
	f := healthy()
	h := HostFacts{Host: name, Facts: &f}
	if change != nil {
		change(&h)
	}
	return h
}

func TestCompare(t *testing.T) {
	arm := func(h *HostFacts) { h.Facts.Arch = "aarch64" }
	mtu := func(of int) func(*HostFacts) {
		return func(h *HostFacts) {
			r := wired()
			r.Links[1].MTU = of
			h.Agent = &r
		}
	}
	none := func(h *HostFacts) { h.Facts = nil }
	for _, c := range []struct {
		name  string
		hosts []HostFacts
		want  string
	}{
		{"equal", []HostFacts{host("h1", nil), host("h2", nil)}, ""},
		{"processors", []HostFacts{host("h1", arm), host("h2", nil), host("h3", nil), host("h4", none)},
			"host h1: warning platform: the processors are not all of one kind: x86_64 (h[2-3]), aarch64 (h1)"},
		{"equal packets", []HostFacts{host("h1", mtu(9000)), host("h2", mtu(9000)), host("h3", nil)}, ""},
		{"packets", []HostFacts{host("h0", nil), host("h1", mtu(1500)), host("h4", mtu(0)), host("h2", mtu(9000)), host("h3", mtu(9000))},
			"host h1: warning network: the interfaces for data differ in their MTU: 9000 (h[2-3]), 1500 (h1)"},
	} {
		var got []string
		for _, f := range compare(c.hosts) {
			got = append(got, where(f.Hosts)+": "+words([]Finding{f}))
		}
		if strings.Join(got, "\n") != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// If the clocks of all hosts differ from this machine's by the same time, this
// machine's clock is wrong.
func TestOwnClockIsWrong(t *testing.T) {
	for _, c := range []struct {
		skews []float64
		want  string
	}{
		{[]float64{100, 102}, "this machine: its clock is 100 s behind that of all hosts"},
		{[]float64{-7200, -7201}, "this machine: its clock is 2 hours ahead of that of all hosts"},
		{[]float64{100, 106}, "found"}, // the hosts also differ from each other
		{[]float64{100, 0}, "found"},
		{[]float64{-6, -3}, "found"},
		{[]float64{100}, "found"},
	} {
		var all []HostFacts
		for _, s := range c.skews {
			all = append(all, host("h", func(h *HostFacts) { h.Facts.Skew = s }))
		}
		got := mergeClockFindings(all, []Finding{{Check: Clock, Hosts: []string{"h"}, Text: "found"}})
		if len(got) != 1 || got[0].Text != "found" && where(got[0].Hosts)+": "+got[0].Text != c.want || c.want == "found" && got[0].Text != "found" {
			t.Errorf("%v: %+v, want %s", c.skews, got, c.want)
		}
	}
}

func TestJudgeGPUs(t *testing.T) {
	two := gpuprobe.Report{GPUTool: gpuprobe.ToolSMI, GPUs: []gpuprobe.GPU{{Index: 0}, {Index: 1}}}
	broken := gpuprobe.Report{GPUTool: gpuprobe.ToolBroken, GPUError: "nvidia-smi failed: Driver/library version mismatch"}
	odd := two
	odd.GPUError = "the list of processes is not known"
	for _, c := range []struct {
		line   string
		report gpuprobe.Report
		want   string
	}{
		{"h", two, ""},
		{"h: 0,1", two, ""},
		{"h: 2", two, "error gpus: no GPU 2: the host has 0, 1"},
		{"h: slots=3", two, "error gpus: slots=3, but it has 2 GPUs"},
		{"h", broken, "error gpus: which GPUs it has is not known: nvidia-smi failed: Driver/library version mismatch (name their ids after the host, or cpu for a worker without GPU)"},
		{"h: 0", broken, "error gpus: GPU 0 was not found: nvidia-smi failed: Driver/library version mismatch"},
		{"h: cpu", broken, ""},
		{"h: ps", broken, ""},
		{"h", odd, "warning gpus: the list of processes is not known"},
	} {
		lines, err := hostfile.ParseLines([]string{c.line})
		if err != nil {
			t.Fatal(err)
		}
		n := notes{host: "h"}
		n.judgeGPUs(placement.Machine{Host: lines[0], Report: &c.report})
		if got := words(n.all); got != c.want {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
}

func TestJudgeMachines(t *testing.T) {
	lines, err := hostfile.ParseLines([]string{"h1", "h2: 0", "h3: 0", "h4: cpu"})
	if err != nil {
		t.Fatal(err)
	}
	busy := gpuprobe.Report{GPUTool: gpuprobe.ToolSMI, GPUs: []gpuprobe.GPU{{Index: 0, Busy: true, MemoryUsedMiB: 9000}}}
	free := gpuprobe.Report{GPUTool: gpuprobe.ToolSMI, GPUs: []gpuprobe.GPU{{Index: 0}}}
	machines := []placement.Machine{{Host: lines[0], Report: &busy, ID: "a/x"}, {Host: lines[1], Report: &free, ID: "b/y"},
		{Host: lines[2], Report: &free, ID: "b/y"}, {Host: lines[3], Report: &free, ID: "a/x"}}
	want := "error gpus: a GPU is in use: GPU 0 by processes that the host does not show (9000 MiB in use)\n" +
		"error machine: hosts h[2-3] are one machine (y), and both would use gpu 0"
	if got := words(judgeMachines(machines)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	machines[2].ID = "c/z"
	want = strings.Split(want, "\n")[0] + "\nwarning machine: hosts h[1,4] are one machine (x)"
	if got := words(judgeMachines(machines)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPrint(t *testing.T) {
	for _, c := range []struct {
		d    Diagnosis
		want string
	}{
		{Diagnosis{Hosts: make([]HostFacts, 8)}, "8 hosts, nothing found\n"},
		{Diagnosis{Hosts: []HostFacts{{Host: "h1"}, {Host: "h2"}, {Host: "h3"}}, Findings: []Finding{
			{Error, Home, []string{"h1", "h2"}, "full\x1b[2J", "free space"}, {Warning, Clock, []string{thisMachine}, "late", ""}}},
			"error: hosts h[1-2]: full\\x1b[2J; remedy: free space\nwarning: this machine: late\n3 hosts: 1 error, 1 warning; nothing found on 1\n"},
	} {
		var out bytes.Buffer
		if err := c.d.Print(console.Terminal{Stdout: &out}); err != nil || out.String() != c.want {
			t.Errorf("%q %v, want %q", out.String(), err, c.want)
		}
	}
}
