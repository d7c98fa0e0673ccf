package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/internal/test/transporttest"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
	"github.com/plx-run/plx/trainer/cluster"
)

const blob = ".plx/blobs/abc"

// recorded returns the record of a detached job on h1 and h2, driven by h2.
// This machine connects to h1 as user "u".
func recorded() Record {
	return Record{Job: "j", Program: "train", Detached: true, Chief: 1, Hosts: []HostRecord{
		{Line: "u@h1", Folder: "h1", Binary: blob, Tasks: []string{"worker:1"}},
		{Line: "h2: cpu*2", Folder: "h2", Binary: blob, Tasks: []string{"worker:0"}}}}
}

// at returns a host of a layout: with the given worker, or as a host that has
// left if worker is -1.
func at(name string, worker int) protocol.HostPlan {
	h := protocol.HostPlan{Host: name, Folder: name, Line: name + ": cpu*2", Binary: blob, Left: worker < 0}
	if worker >= 0 {
		h.Tasks = []protocol.TaskSpec{{Task: cluster.Task{Role: cluster.Worker, Index: worker}}}
	}
	return h
}

func TestLayoutReplacesHosts(t *testing.T) {
	for name, x := range map[string]struct {
		layout []protocol.HostPlan
		want   []HostRecord
		chief  int
	}{
		"one more": {[]protocol.HostPlan{at("h1", 1), at("h2", 0), at("h3", 2)}, []HostRecord{
			{Line: "u@h1", Folder: "h1", Binary: blob, Tasks: []string{"worker:1"}},
			{Line: "h2: cpu*2", Folder: "h2", Binary: blob, Tasks: []string{"worker:0"}},
			{Line: "h3: cpu*2", Folder: "h3", Binary: blob, Tasks: []string{"worker:2"}}}, 1},
		"one left, its logs may lie there": {[]protocol.HostPlan{at("h1", -1), at("h2", 0), at("h3", -1)}, []HostRecord{
			{Line: "u@h1", Folder: "h1", Binary: blob, Tasks: []string{"worker:1"}, Left: true},
			{Line: "h2: cpu*2", Folder: "h2", Binary: blob, Tasks: []string{"worker:0"}},
			{Line: "h3: cpu*2", Folder: "h3", Binary: blob, Left: true}}, 1},
		"one left and came again": {[]protocol.HostPlan{at("h1", -1), at("h2", 0), at("h3", 1), at("h1", 2)}, []HostRecord{
			{Line: "h2: cpu*2", Folder: "h2", Binary: blob, Tasks: []string{"worker:0"}},
			{Line: "h3: cpu*2", Folder: "h3", Binary: blob, Tasks: []string{"worker:1"}},
			{Line: "u@h1", Folder: "h1", Binary: blob, Tasks: []string{"worker:2"}}}, 0},
	} {
		r := recorded()
		laid, err := r.lay(protocol.Layout{Generation: 2, Hosts: x.layout})
		if err != nil || !laid || !reflect.DeepEqual(r.Hosts, x.want) || r.Chief != x.chief || r.Laid != 2 || !r.Restarts {
			t.Errorf("%s: %v, %v\n%+v\nwant %+v, chief %d", name, laid, err, r, x.want, x.chief)
		}
		before := r
		for _, generation := range []int{-1, 0, 1, 2} {
			if laid, err := r.lay(protocol.Layout{Generation: generation}); laid || err != nil || !reflect.DeepEqual(r, before) {
				t.Errorf("%s: generation %d after 2: %v, %v", name, generation, laid, err)
			}
		}
	}
}

// An invalid layout from an agent changes nothing in the record.
func TestInvalidLayoutIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*protocol.Layout){
		"option":      func(l *protocol.Layout) { l.Hosts[2].Line = "-oProxyCommand=x" },
		"two lines":   func(l *protocol.Layout) { l.Hosts[2].Line = "h3\nh4" },
		"no line":     func(l *protocol.Layout) { l.Hosts[2].Line = "" },
		"folder":      func(l *protocol.Layout) { l.Hosts[2].Folder = "../h3" },
		"shell":       func(l *protocol.Layout) { l.Hosts[2].Binary = ".plx/blobs/a;rm" },
		"other name":  func(l *protocol.Layout) { l.Hosts[2].Host = "h9" },
		"same twice":  func(l *protocol.Layout) { l.Hosts[2] = at("H1", 2) },
		"no chief":    func(l *protocol.Layout) { l.Hosts = slices.Delete(l.Hosts, 1, 2) },
		"a host less": func(l *protocol.Layout) { l.Hosts = l.Hosts[1:] },
		"nothing":     func(l *protocol.Layout) { l.Hosts = nil },
	} {
		r, layout := recorded(), protocol.Layout{Generation: 1, Hosts: []protocol.HostPlan{at("h1", 1), at("h2", 0), at("h3", 2)}}
		spoil(&layout)
		if laid, err := r.lay(layout); laid || err == nil || !reflect.DeepEqual(r, recorded()) {
			t.Errorf("%s: %v, %v, %+v", name, laid, err, r)
		}
	}
}

func FuzzLayout(f *testing.F) {
	for _, hosts := range [][]protocol.HostPlan{{at("h1", 0), at("h2", 1), at("h3", 2)}, {at("h1", -1), at("h2", 0), at("h1", 1)}, nil} {
		text, err := json.Marshal(protocol.Layout{Generation: 1, Hosts: hosts})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var layout protocol.Layout
		if json.Unmarshal(text, &layout) != nil {
			return
		}
		r := recorded()
		laid, err := r.lay(layout)
		if !laid {
			if !reflect.DeepEqual(r, recorded()) {
				t.Errorf("%v, and %+v", err, r)
			}
			return
		}
		if reach, err := r.reach(hosts.Reach{}); err != nil || len(reach.Hosts) != len(r.Hosts) || r.Hosts[r.Chief].Folder != "h2" {
			t.Errorf("%v, %+v", err, r)
		}
		for _, h := range r.Hosts {
			if !hosts.IsBlob(h.Binary) || !hosts.IsSafe(h.Folder) {
				t.Errorf("%+v", h)
			}
		}
	})
}

// told opens the recorded job. The agent that drives the job is a script.
func told(t *testing.T, script string) (*Job, *bytes.Buffer) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	home := t.TempDir()
	if err := putAgent(home, script); err != nil {
		t.Fatal(err)
	}
	said := new(bytes.Buffer)
	j := &Job{Record: recorded(), printer: console.NewPrinter(console.Terminal{Stderr: said}), set: &hosts.Set{}}
	for i, name := range []string{"h1", "h2"} {
		r := hosts.NewHost(hostfile.Host{Name: name}, func(context.Context) (transport.Transport, error) {
			if i != j.Chief {
				return nil, errors.New("no route")
			}
			return transporttest.Shell(home), nil
		})
		j.agents = append(j.agents, &hosts.AgentHost{Host: r, Job: j.Job, Folder: name, Binary: blob})
	}
	return j, said
}

// says returns a script that prints an agent's state with the given layout and
// verdict.
func says(t *testing.T, l protocol.Layout, v *protocol.Verdict) string {
	t.Helper()
	text, err := json.Marshal(protocol.State{Job: "j", Layout: &l, Verdict: v})
	if err != nil {
		t.Fatal(err)
	}
	return `[ "$*" = "agent state j h2" ] && echo '` + string(text) + `'`
}

// If another machine has scaled a job, the next command here updates the
// record with the job's new hosts.
func TestScaledJobGetsItsNewHosts(t *testing.T) {
	three := protocol.Layout{Generation: 1, Hosts: []protocol.HostPlan{at("h1", -1), at("h2", 0), at("h3", 1), at("h4", 2)}}
	for _, verdict := range []*protocol.Verdict{nil, {Code: 3}} {
		j, _ := told(t, says(t, three, verdict))
		now, err := j.refreshed(t.Context(), hosts.Reach{})
		if err != nil || len(now.agents) != 4 || len(now.present()) != 3 || now.agents[now.Chief].Name() != "h2" {
			t.Fatalf("%v, %+v", err, now)
		}
		rs, err := Records()
		if err != nil || len(rs) != 1 || !reflect.DeepEqual(rs[0].Hosts, now.Hosts) || rs[0].Laid != 1 || !reflect.DeepEqual(rs[0].Verdict, verdict) {
			t.Errorf("%v, saved %+v, want the hosts of %+v", err, rs, now.Record)
		}
	}
}

// If the agent does not reply or its layout is invalid, the record does not
// change.
func TestRecordStaysWithoutANewLayout(t *testing.T) {
	bad := protocol.Layout{Generation: 1, Hosts: []protocol.HostPlan{at("h1", 1), at("h2", 0), at("h3", 2)}}
	bad.Hosts[2].Line = "-oProxyCommand=x"
	good := bad
	good.Hosts = []protocol.HostPlan{at("h1", 1), at("h2", 0), at("h3", 2)}
	for name, x := range map[string]struct {
		script string
		edit   func(*Record)
		said   string
	}{
		"no agent":      {"exit 5", nil, ""},
		"no state":      {"echo '{'", nil, ""},
		"first layout":  {"echo '{}'", nil, ""},
		"no layout":     {says(t, bad, nil), nil, "job j: its new hosts were not recorded"},
		"older":         {says(t, good, nil), func(r *Record) { r.Laid = 1 }, ""},
		"attached":      {says(t, good, nil), func(r *Record) { r.Detached = false }, ""},
		"embedded":      {says(t, good, nil), func(r *Record) { r.Embedded = true }, ""},
		"no own record": {says(t, good, nil), func(r *Record) { r.found = true }, ""},
		"over":          {says(t, good, nil), func(r *Record) { r.Verdict = &protocol.Verdict{} }, ""},
	} {
		j, said := told(t, x.script)
		if x.edit != nil {
			x.edit(&j.Record)
		}
		before := j.Record
		now, err := j.refreshed(t.Context(), hosts.Reach{})
		if err != nil || now != j || !reflect.DeepEqual(j.Record, before) {
			t.Errorf("%s: %v, %+v", name, err, now)
		}
		if x.said == "" && said.Len() > 0 || !strings.Contains(said.String(), x.said) {
			t.Errorf("%s: said %q, want %q", name, said, x.said)
		}
	}
}
