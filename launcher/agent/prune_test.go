//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/outputs"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
)

// left creates the folder of a job that ended long ago, with one output file.
func left(t *testing.T, job string, named ...protocol.Output) jobfolder.Folder {
	t.Helper()
	root, err := jobfolder.Root()
	if err != nil {
		t.Fatal(err)
	}
	f := jobfolder.Folder(filepath.Join(root, "jobs", job, "gpu01"))
	own, long := filepath.Join(f.Tasks(), "worker-0"), time.Now().Add(-old)
	state := protocol.State{Job: job, Folder: "gpu01", Phase: protocol.Over, Products: protocol.Products{Outputs: named}}
	if err := errors.Join(os.MkdirAll(own, 0o700), f.RecordTaskFolder(own), os.WriteFile(filepath.Join(own, "model.pt"), []byte("weights"), 0o600),
		f.WriteState(state), os.Chtimes(f.State(), long, long)); err != nil {
		t.Fatal(err)
	}
	return f
}

// fetched records that all outputs of a job were fetched.
func fetched(t *testing.T, f jobfolder.Folder) {
	t.Helper()
	var all []protocol.HostOutput
	if err := outputs.List(f, protocol.Wanted{Made: true}, func(o protocol.HostOutput) error { all = append(all, o); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := outputs.RecordFetched(f, all); err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
}

// pruned removes what is older than an hour, and returns the reported items.
func pruned(t *testing.T, want protocol.PruneRequest) []protocol.Pruned {
	t.Helper()
	want.Older = time.Hour
	answer, err := prune(t.Context(), want)
	if err != nil || answer.Failed != "" {
		t.Fatal(err, answer.Failed)
	}
	return answer.Items
}

// A job's outputs stay until they were fetched, unless the user discards them.
func TestPruneKeepsUnfetchedOutputs(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, named := range [][]protocol.Output{nil, {{Pattern: "*.pt"}}} {
		kept := protocol.Pruned{Path: "jobs/j/gpu01", Bytes: 7, Outputs: 1, Job: "j", Folder: "gpu01"}
		f := left(t, "j", named...)
		if got := pruned(t, protocol.PruneRequest{}); !slices.Equal(got, []protocol.Pruned{kept}) || !there(f.State()) {
			t.Errorf("%v not fetched: %+v, there %t", named, got, there(f.State()))
		}
		if got := pruned(t, protocol.PruneRequest{Discard: true, Dry: true}); len(got) != 1 || got[0].Outputs != 0 || !there(f.State()) {
			t.Errorf("%v, dry run: %+v, there %t", named, got, there(f.State()))
		}
		if got := pruned(t, protocol.PruneRequest{Discard: true}); len(got) != 1 || there(f.State()) {
			t.Errorf("%v, discarded: %+v, there %t", named, got, there(f.State()))
		}
		f = left(t, "j", named...)
		fetched(t, f)
		if got := pruned(t, protocol.PruneRequest{}); len(got) != 1 || there(f.State()) {
			t.Errorf("%v, fetched: %+v, there %t", named, got, there(f.State()))
		}
	}
}

// Several hosts that share a home may prune it at the same time. None of them
// mistakes a job that another one is removing for a job whose outputs cannot
// be checked.
func TestConcurrentPrunesOfOneHome(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for i := range 40 {
		fetched(t, left(t, fmt.Sprint("job", i)))
	}
	answers := make([]protocol.PruneAnswer, 8)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i], _ = prune(t.Context(), protocol.PruneRequest{Older: time.Hour}) })
	}
	all.Wait()
	removed := 0
	for _, answer := range answers {
		for _, item := range answer.Items {
			if item.Unchecked != "" || item.Outputs > 0 {
				t.Errorf("%+v", item)
			}
			removed++
		}
		if answer.Failed != "" {
			t.Error(answer.Failed)
		}
	}
	if removed != 40 {
		t.Errorf("%d folders were removed", removed)
	}
}

// Prune keeps a job under another spelling of HOME, a job whose record of
// fetched files is damaged, and a job that the launcher asks to keep because
// another host has its files.
func TestPruneKeepsJobs(t *testing.T) {
	real := t.TempDir()
	t.Setenv("HOME", real)
	f := left(t, "j")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", link)
	item := protocol.Pruned{Path: "jobs/j/gpu01", Bytes: 7, Outputs: 1, Job: "j", Folder: "gpu01"}
	if got := pruned(t, protocol.PruneRequest{}); !slices.Equal(got, []protocol.Pruned{item}) || !there(f.State()) {
		t.Errorf("by a link: %+v, there %t", got, there(f.State()))
	}
	fetched(t, f)
	note := filepath.Join(string(f), "fetched.json")
	text, err := os.ReadFile(note)
	if err = errors.Join(err, os.WriteFile(note, []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := pruned(t, protocol.PruneRequest{}); len(got) != 1 || got[0].Outputs != 1 || !strings.HasPrefix(got[0].Unchecked, "read fetched.json: ") || !there(f.State()) {
		t.Errorf("not known: %+v, there %t", got, there(f.State()))
	}
	if err := os.WriteFile(note, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := pruned(t, protocol.PruneRequest{Keep: []string{"j"}}); !there(f.State()) {
		t.Errorf("on request: %+v, there %t", got, there(f.State()))
	}
	if got := pruned(t, protocol.PruneRequest{}); len(got) != 1 || there(f.State()) {
		t.Errorf("fetched: %+v, there %t", got, there(f.State()))
	}
}

// Prune keeps recent files and jobs that cannot be checked. After it was
// canceled, it removes nothing more.
func TestPruneKeepsRecentAndUncheckableFiles(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	root, err := jobfolder.Root()
	if err != nil {
		t.Fatal(err)
	}
	young, lives, unknown, damaged := left(t, "young"), left(t, "lives"), left(t, "unknown"), left(t, "damaged")
	now, long := time.Now(), time.Now().Add(-old)
	if err := os.Chtimes(young.State(), now, now); err != nil {
		t.Fatal(err)
	}
	write := func(f jobfolder.Folder, s protocol.State) {
		t.Helper()
		if s.Job, s.Folder = f.Job(), f.Name(); errors.Join(f.WriteState(s), os.Chtimes(f.State(), long, long)) != nil {
			t.Fatal(f)
		}
	}
	me, err := process.Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	write(lives, protocol.State{Processes: protocol.Processes{Machine: jobfolder.Machine(), Supervisor: os.Getpid(), SupervisorStart: me.Start}, Phase: protocol.Running})
	write(unknown, protocol.State{Processes: protocol.Processes{Machine: "another host"}, Phase: protocol.Running})
	if err := errors.Join(os.WriteFile(damaged.State(), []byte("{"), 0o600), os.Chtimes(damaged.State(), long, long)); err != nil {
		t.Fatal(err)
	}
	spare := filepath.Join(root, "spares", "gpu01--source")
	if got := pruned(t, protocol.PruneRequest{Discard: true}); len(got) > 0 {
		t.Errorf("pruned %+v", got)
	}
	if err := errors.Join(os.MkdirAll(spare, 0o700), os.Chtimes(spare, long, long)); err != nil {
		t.Fatal(err)
	}
	ends, cancel := context.WithCancel(t.Context())
	cancel()
	if answer, err := prune(ends, protocol.PruneRequest{Older: time.Hour, Discard: true}); err != nil || !strings.Contains(answer.Failed, context.Canceled.Error()) || !there(spare) && !there(filepath.Join(root, "spares", leavingMark+"gpu01--source")) {
		t.Errorf("told to end: %+v, %v, there %t", answer, err, there(spare))
	}
	if got := pruned(t, protocol.PruneRequest{Discard: true}); len(got) != 1 || there(spare) {
		t.Errorf("the folder that an earlier plx made ahead: %+v, there %t", got, there(spare))
	}
}

// The files sent to an old job count as unused, with three exceptions: its
// outputs were not fetched, finding its outputs needs the sent files, or the
// job may run on another host.
func TestGCKeepsFilesThatOutputsNeed(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	root, err := jobfolder.Root()
	if err != nil {
		t.Fatal(err)
	}
	plain, young, elsewhere := left(t, "plain"), left(t, "young"), left(t, "elsewhere")
	named := left(t, "named", protocol.Output{Pattern: "*.pt"})
	left(t, "unfetched")
	for _, f := range []jobfolder.Folder{plain, young, named, elsewhere} {
		fetched(t, f)
	}
	if now := time.Now(); os.Chtimes(young.State(), now, now) != nil {
		t.Fatal(young)
	}
	runs, long := protocol.State{Job: "elsewhere", Folder: "gpu01", Processes: protocol.Processes{Machine: "another host"}, Phase: protocol.Running}, time.Now().Add(-old)
	if err := errors.Join(elsewhere.WriteState(runs), os.Chtimes(elsewhere.State(), long, long)); err != nil {
		t.Fatal(err)
	}
	p := &pruner{ctx: t.Context(), root: root, before: time.Now().Add(-unusedFor)}
	if err := p.oldJobs(); err != nil || !slices.Equal(p.removedJobs, []jobfolder.Folder{plain}) {
		t.Errorf("leaving are %v, %v", p.removedJobs, err)
	}
}

// Prune removes cached files of folders unless a job uses them; a job that
// prune keeps counts too.
func TestPruneKeepsFilesOfKeptJobs(t *testing.T) {
	h := newHost(t, 1)
	t.Setenv("HOME", h.home)
	sum, list := copied(t, h, "conf/a.txt", "hello")
	f := left(t, "j")
	if err := os.WriteFile(filepath.Join(string(f), "manifests"), []byte(sum+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	later := func(p *pruner) *pruner { // cached files count by their ctime, which a test cannot set
		p.before = time.Now().Add(time.Hour)
		return p
	}
	root := filepath.Join(h.home, ".plx")
	p := later(&pruner{ctx: t.Context(), root: root})
	if err := errors.Join(p.jobs(), p.files()); err != nil || !there(list) {
		t.Errorf("files of a job that is kept: %v, there %t", err, there(list))
	}
	for _, dry := range []bool{true, false} {
		p = later(&pruner{ctx: t.Context(), root: root, discard: true, dry: dry})
		err := errors.Join(p.jobs(), p.files())
		var told []string
		for _, item := range p.items {
			told = append(told, item.Path)
		}
		if err != nil || there(list) != dry || strings.Join(told, " ") != "jobs/j/gpu01 files" {
			t.Errorf("with the job, dry run %t: %v, there %t, told %q", dry, err, there(list), told)
		}
	}
}
