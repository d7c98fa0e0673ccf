package launcher

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/entrypoint"
	"github.com/plx-run/plx/launcher/placement"
)

// TestReportP1 tells of hosts whose own CUDA_VISIBLE_DEVICES does not count.
func TestReportP1(t *testing.T) {
	tasks := []placement.Task{{}, {Visible: "0,1"}, {Visible: "2"}}
	for own, told := range map[string]bool{"": false, "0,1,2": false, "2,1,0": false, "0": true, "0,1,2,3": true, "GPU-aaaa": true} {
		machines := []placement.Machine{{Host: hostfile.Host{Name: "h1"}, Report: &gpuprobe.Report{Visible: own}}}
		lines := overruled(placement.Placement{Hosts: []placement.Host{{Tasks: tasks}}}, machines)
		if len(lines) > 0 != told || told && !strings.Contains(lines[0], "host h1: its environment sets CUDA_VISIBLE_DEVICES="+own+", which does not count here: its tasks get 0,1,2; to keep") {
			t.Errorf("%q: %q", own, lines)
		}
		// Workers without GPU.
		if lines := overruled(placement.Placement{Hosts: []placement.Host{{Tasks: tasks[:1]}}}, machines); len(lines) > 0 {
			t.Errorf("%q: %q", own, lines)
		}
	}
}

// A launcher that the program starts is noted with its place, for programs without plx's
// trainer only.
func TestLauncherIsNoted(t *testing.T) {
	for want, program := range map[string]entrypoint.Program{
		"note: ./run.sh:4 starts torchrun in each worker, which starts processes of its own: plx starts one worker per device itself, so leave torchrun and its options out": {Launcher: "torchrun", Where: "./run.sh:4"},
		"note: each worker runs mpirun, which starts processes of its own: plx starts one worker per device itself, so leave mpirun and its options out":                     {Launcher: "mpirun"},
		"": {Launcher: "mpirun", Trainer: true},
	} {
		if got := strings.Join(foreignNotes(Config{}, program, placement.Placement{}, nil), "|"); got != want {
			t.Errorf("%+v: %q, want %q", program, got, want)
		}
	}
}

// The first line of an embedded job fits a small terminal.
func TestEmbeddedLine(t *testing.T) {
	cfg := Config{}
	for _, size := range [][2]int{{1, 2}, {256, 256}} {
		cfg.LocalHosts, cfg.LocalWorkers = size[0], size[1]
		if line := "plx: " + embeddedLine(cfg); len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	if cfg.LocalAsked = true; strings.Contains(embeddedLine(cfg), "--hosts") {
		t.Error(embeddedLine(cfg))
	}
}
