package launcher

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/entrypoint"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
)

// A note names hosts whose own CUDA_VISIBLE_DEVICES is not used.
func TestOverruledVisibleDevicesAreReported(t *testing.T) {
	tasks := []placement.Task{{}, {VisibleIDs: "0,1"}, {VisibleIDs: "2"}}
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

// A program without plx's trainer that starts a launcher such as torchrun
// leads to a note with file and line.
func TestProgramThatStartsTorchrunIsReported(t *testing.T) {
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

// A command on the hosts counts as linking plx's trainer if it does on all
// hosts that have it.
func TestHostsMustAgreeOnTrainerProgram(t *testing.T) {
	is, other, absent := protocol.Found{There: true, Trainer: true}, protocol.Found{There: true}, protocol.Found{}
	auto := Config{AutoServers: true}
	auto.Program = "train"
	late := auto
	late.Setup = "module load train"
	chosen := auto
	chosen.AutoServers = false
	for name, c := range map[string]struct {
		cfg     Config
		found   []protocol.Found
		trainer bool
		note    string
	}{
		"on all":                 {auto, []protocol.Found{is, is, is}, true, ""},
		"on none":                {auto, []protocol.Found{other, other, other}, false, ""},
		"on all that have it":    {auto, []protocol.Found{absent, is, is}, true, ""},
		"missing":                {auto, []protocol.Found{absent, absent, absent}, false, ""},
		"of different kinds":     {auto, []protocol.Found{is, other, absent}, false, "note: train links plx's trainer on host h1 and not on host h2, so the job has no servers (--ps all)"},
		"the user chose servers": {chosen, []protocol.Found{is, other, absent}, false, ""},
		"from a setup line":      {late, []protocol.Found{absent, absent, absent}, false, "note: train is on no host's PATH before --setup, so the job has no servers; if it links plx's trainer, add --ps all"},
		"there before the setup": {late, []protocol.Found{is, is, is}, true, ""},
		"other before the setup": {late, []protocol.Found{other, other, absent}, false, ""},
	} {
		trainer, note := agreed(c.cfg, []string{"h1", "h2", "h3"}, c.found)
		if trainer != c.trainer || note != c.note {
			t.Errorf("%s: %v, %q, want %v, %q", name, trainer, note, c.trainer, c.note)
		}
	}
}

// The first line about an embedded cluster fits into a small terminal.
func TestEmbeddedLine(t *testing.T) {
	cfg := Config{}
	for _, size := range [][2]int{{1, 2}, {256, 256}} {
		cfg.LocalHosts, cfg.LocalWorkers = size[0], size[1]
		if line := "plx: " + embeddedLine(cfg); len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	if cfg.LocalGiven = true; strings.Contains(embeddedLine(cfg), "--hosts") {
		t.Error(embeddedLine(cfg))
	}
}
