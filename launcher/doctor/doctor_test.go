package doctor

import (
	"testing"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// A diagnosis contains the findings of each host, of its agent, and between
// hosts.
func TestDiagnosis(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	set := &hosts.Set{}
	for _, name := range []string{"h1", "h2", "h3", "h4"} {
		h := hosts.NewHost(hostfile.Host{Name: name}, nil)
		h.Report = gpuprobe.Report{GPUTool: gpuprobe.ToolNone, GPUs: []gpuprobe.GPU{}}
		set.Hosts = append(set.Hosts, h)
	}
	e := newExamination(Config{}, set, nil)
	e.placed, e.dials = e.visits, DialCounts{2, 2}
	for _, v := range e.visits {
		facts := healthy()
		v.facts = &facts
	}
	if d := e.diagnosis(); len(d.Findings) != 0 || d.Fails() || len(d.Hosts) != 4 || d.Reachability != (DialCounts{2, 2}) {
		t.Errorf("good hosts: %+v", d)
	}
	set.Hosts[0].StartUpOutput.Store(7)
	set.Hosts[1].StartUpOutput.Store(7)
	e.visits[1].add(Error, Home, "make it", "the home is not there") // sshd itself prints about a missing home at each command
	e.visits[1].agentReport = &protocol.HostReport{Old: 1}
	e.visits[2].Report.GPUs = []gpuprobe.GPU{{Index: 0, Busy: true, MemoryUsedMiB: 5}}
	e.visits[3].Report.GPUs = e.visits[2].Report.GPUs
	e.placed = e.visits[:3] // hosts that were not examined completely are left out of comparisons
	d := e.diagnosis()
	want := "error home: the home is not there\n" + "error gpus: a GPU is in use: GPU 0 by processes that the host does not show (5 MiB in use)\n" +
		"warning shell: start-up files of the login shell print at each command, which breaks other programs\n" +
		"warning leftovers: jobs that ended more than 30 days ago take room in ~/.plx"
	if got := words(d.Findings); got != want || !d.Fails() {
		t.Errorf("%q, want %q", got, want)
	}
	for i, host := range []string{"h2", "h3", "h1", "h2"} {
		if got := d.Findings[i].Hosts; len(got) != 1 || got[0] != host {
			t.Errorf("%s: on %v, not on %s", d.Findings[i].Text, got, host)
		}
	}
}

func TestExamineRefusesWrongConfig(t *testing.T) {
	lines := hosts.Reach{Hosts: []hostfile.Host{{Name: "h1"}}}
	for _, cfg := range []Config{{}, {Reach: lines, Path: "/opt/bin"}, {Reach: lines, CheckImport: []string{"a b"}}} {
		if _, err := Examine(t.Context(), cfg); exit.Code(err) != exit.CodeUsage || exit.Hint(err) == "" {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
