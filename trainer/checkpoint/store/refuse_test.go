package store

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
)

// A report counts for the task that it comes from, once, and for this save.
func TestReportsAreChecked(t *testing.T) {
	buddy := worker(2)
	file := func(task, name string) *checkpoint.File { return &checkpoint.File{Task: task, Name: name} }
	for name, test := range map[string]struct {
		r    report
		want string // "": good
	}{
		"good":           {report{File: file("ps:0", "ps-0.safetensors"), Copy: true}, ""},
		"nothing":        {report{}, ""},
		"failed":         {report{Err: "no space"}, "ps:0 on there: no space"},
		"another's file": {report{File: file("ps:0", "ps-1.safetensors"), Copy: true}, "want \"ps-0"},
		"another's name": {report{File: file("ps:1", "ps-0.safetensors"), Copy: true}, "want \"ps-0"},
		"no copy":        {report{File: file("ps:0", "ps-0.safetensors")}, "second copy false"},
	} {
		there := func(t cluster.Task) string { return t.String() + " on there" }
		s := newSave(Expected{Holders: []cluster.Task{ps(0)}}, 0)
		s.buddies[ps(0)] = &buddy
		s.take(worker(1), &report{Err: "not asked"}, there)
		s.take(ps(0), &report{State: true, Err: "not asked"}, there)
		if s.complete() {
			t.Fatalf("%s: complete before", name)
		}
		s.take(ps(0), &test.r, there)
		s.take(ps(0), &report{Err: "again"}, there)
		if !s.complete() || (s.err == nil) != (test.want == "") || s.err != nil && !strings.Contains(s.err.Error(), test.want) {
			t.Errorf("%s: %t, %v", name, s.complete(), s.err)
		}
	}
}

// A task brings its own files, and only while the save is under way.
func TestCopiesOfOtherFilesAreRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	j, w, d, _ := trained(t, impatience)
	j.expect(w, 2, d)
	p := j.stores[ps(0)].parts
	eventually(t, "the save has begun", func() bool { return strings.HasPrefix(p.busy(), "000000000002") })
	id := p.busy()
	for _, name := range []string{"worker-0.safetensors", "../worker-1.safetensors", "manifest.json", "ps-0.safetensors", ""} {
		if _, err := p.Join(soon(t), worker(1), id, name); err == nil || !strings.Contains(err.Error(), "of a file that is not worker:1's") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"worker-1.safetensors", "worker-1.state.safetensors"} {
		leave, err := p.Join(soon(t), worker(1), id, name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		leave()
	}
	for _, id := range []string{checkpoint.NewID(2, 0), "..", ""} {
		if _, err := p.Join(soon(t), worker(1), id, "worker-1.safetensors"); err == nil || !strings.Contains(err.Error(), "is not being saved here") {
			t.Errorf("%q: %v", id, err)
		}
	}
	j.kill()
}

// A manifest counts only if it is the one that was announced.
func TestChangedManifestIsRefused(t *testing.T) {
	j, _, _, _ := trained(t, patience)
	r := j.chief().chief.roster
	m := r.member(ps(0))
	holding, err := j.stores[ps(0)].inventory.list()
	if err != nil || len(holding) != 1 {
		t.Fatalf("%v, %v", holding, err)
	}
	if _, err := (folders{r}).fetch(soon(t), m, holding[0]); err != nil {
		t.Error(err)
	}
	holding[0].Manifest = strings.Repeat("0", 64)
	if _, err := (folders{r}).fetch(soon(t), m, holding[0]); err == nil || !strings.Contains(err.Error(), "has changed") {
		t.Errorf("%v", err)
	}
	j.end()
}

// lone is the store of a job of one task that has a save under way.
func lone(t testing.TB, dir string, silence time.Duration) *Store {
	t.Helper()
	d, err := Open(t.Context(), Config{Peers: peers.Config{Self: cluster.Chief}, Dir: dir, Silence: silence})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// Whatever one side says, the other neither breaks nor leaves its folder.
func FuzzConversation(f *testing.F) {
	add := func(all ...message) {
		var b []byte
		for _, m := range all {
			one, err := json.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			b = append(append(b, byte(len(one)), byte(len(one)>>8)), one...)
		}
		f.Add(b)
	}
	id := "000000000002-g0-00000001"
	add(message{Kind: begin, ID: id, Step: 2, Wanted: &wanted{Pieces: true, State: true}}, message{Kind: abandon, ID: id, Remove: true})
	add(message{Kind: look, Tokens: []string{"a", "../b"}}, message{Kind: verify, ID: id, File: &checkpoint.File{Name: "../x"}})
	add(message{Kind: fetch, ID: ".."}, message{Kind: retain, Keep: -4}, message{Kind: commit, ID: id, Body: []byte("x")}, message{Kind: bye})
	add(message{Kind: chosen, Body: []byte("x")}, message{Kind: chosen})
	add(message{Kind: reported}, message{Kind: reported, ID: id, Report: &report{}}, message{Kind: answer, Number: 7}, message{Kind: leave}, message{Kind: restored})
	root := f.TempDir()
	secret := filepath.Join(root, "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := lone(t, filepath.Join(root, "store"), patience)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stranger := newMember(worker(1), message{})
		for len(b) > 2 {
			n := min(int(b[0])|int(b[1])<<8, len(b)-2)
			var m message
			err := json.Unmarshal(b[2:2+n], &m)
			b = b[2+n:]
			if err == nil {
				d.hear(ctx, m) // an error ends a conversation, here it goes on
				d.chief.hear(stranger, m)
			}
		}
		cancel()
		d.Close()
		if all, err := filepath.Glob(filepath.Join(root, "*")); err != nil || !reflect.DeepEqual(all, []string{secret, filepath.Join(root, "store")}) {
			t.Fatalf("%q, %v", all, err)
		}
	})
}
