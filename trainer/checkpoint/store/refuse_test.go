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

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
)

// A report counts once, only for the task that sends it and for the current
// save. A file that needs a second copy counts only after the copy's report.
func TestInvalidReportsAreRefused(t *testing.T) {
	buddy := worker(2)
	file := func(task, name string) *checkpoint.File { return &checkpoint.File{Task: task, Name: name} }
	own := file("ps:0", "ps-0.safetensors")
	there := func(t cluster.Task) string { return t.String() + " on there" }
	for name, test := range map[string]struct {
		r, copy report
		want    string // "": good
	}{
		"good":           {report{File: own}, report{Copy: true, File: own}, ""},
		"nothing":        {report{}, report{}, ""},
		"failed":         {report{Err: "no space"}, report{}, "ps:0 on there: no space"},
		"another's file": {report{File: file("ps:0", "ps-1.safetensors")}, report{}, "want \"ps-0"},
		"another's name": {report{File: file("ps:1", "ps-0.safetensors")}, report{}, "want \"ps-0"},
		"no copy": {report{File: own}, report{Copy: true, File: own, Err: "full"},
			"ps:0 on there: second copy of ps-0.safetensors at worker:2 on there: full"},
	} {
		s := newSave(Expected{Holders: []cluster.Task{ps(0)}}, 0)
		s.buddies[ps(0)] = &buddy
		s.take(worker(1), &report{Err: "not asked"}, there)
		s.take(ps(0), &report{State: true, Err: "not asked"}, there)
		s.copied(buddy, &report{Copy: true, File: own}, there) // before it is written
		if s.complete() {
			t.Fatalf("%s: complete before", name)
		}
		if keeps := s.take(ps(0), &test.r, there); (keeps != nil) != test.copy.Copy || keeps != nil && *keeps != buddy {
			t.Errorf("%s: %v keeps a copy", name, keeps)
		}
		s.take(ps(0), &report{Err: "again"}, there)
		if test.copy.Copy {
			s.copied(worker(1), &test.copy, there)
			s.copied(buddy, &report{Copy: true, File: file("ps:0", "ps-1.safetensors"), Err: "not asked"}, there)
			s.copied(buddy, &report{Copy: true, Err: "of nothing"}, there)
			if s.complete() {
				t.Errorf("%s: complete without a copy", name)
			}
			if failed := s.copied(buddy, &test.copy, there); failed != (test.want != "") {
				t.Errorf("%s: failed %t", name, failed)
			}
		}
		s.copied(buddy, &report{Copy: true, File: own, Err: "again"}, there)
		if !s.complete() || (s.err == nil) != (test.want == "") || s.err != nil && !strings.Contains(s.err.Error(), test.want) {
			t.Errorf("%s: %t, %v", name, s.complete(), s.err)
		}
	}
}

// A task copies only files with valid names and owners, and only during their
// save.
func TestInvalidCopyRequestsAreRefused(t *testing.T) {
	j, w, d, root := trained(t, patience.Limit)
	j.expect(w, 2, d)
	p := j.stores[ps(0)].parts
	eventually(t, "the save has begun", func() bool { return strings.HasPrefix(p.busy(), "000000000002") })
	before := files(t, root, "*/*")
	if p.keep(message{Kind: keep, ID: p.busy()}) == nil {
		t.Error("a copy of nothing")
	}
	good := checkpoint.File{Name: "worker-1.safetensors", Task: "worker:1", Size: 1}
	for _, id := range []string{checkpoint.NewID(2, 0), "..", ""} {
		if err := p.keep(message{Kind: keep, ID: id, File: &good}); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, f := range []checkpoint.File{
		{Name: "../worker-1.safetensors", Task: "worker:1", Size: 1}, {Name: "manifest.json", Task: "worker:1", Size: 1},
		{Name: "", Task: "worker:1", Size: 1}, {Name: good.Name, Task: "chief", Size: 1}, good,
	} {
		if err := p.fetch(p.current, f); err == nil {
			t.Errorf("%+v: no error", f)
		}
	}
	if after := files(t, root, "*/*"); !reflect.DeepEqual(after, before) {
		t.Errorf("%q, before %q", after, before)
	}
	j.kill()
}

// A manifest that was damaged in a message is not written.
func TestDamagedManifestInMessageIsRefused(t *testing.T) {
	j, _, _, _ := trained(t, patience.Limit)
	own, err := announce(j.stores[ps(0)].folder)
	if err != nil || len(own.Holding) != 1 {
		t.Fatalf("%+v, %v", own, err)
	}
	a := own.Holding[0]
	if h := a.held(); h.Manifest == nil || h.Manifest.Step != 1 || h.Damage != "" {
		t.Errorf("%+v", h)
	}
	flip(a.Manifest)
	if h := a.held(); h.Manifest != nil || !strings.Contains(h.Damage, "its sum is wrong") {
		t.Errorf("%+v", h)
	}
	j.end()
}

// lone returns the store of a job with one task, with a save under way.
func lone(t testing.TB, dir string, silence time.Duration) *Store {
	t.Helper()
	d, err := Open(t.Context(), Config{Peers: peers.Config{Self: cluster.Chief}, Dir: dir, Silence: silence})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// Arbitrary messages between a task and the chief cause no panic, and no write
// outside of the folder.
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
	add(message{Kind: begin, ID: id, Step: 2, Wanted: wanted{Pieces: true, State: true}}, message{Kind: over, ID: id, Remove: true})
	add(message{Kind: begin, ID: id, Step: 2, Wanted: wanted{}}, message{Kind: keep}, message{Kind: keep, ID: id, File: &checkpoint.File{Name: "../x", Task: "ps:0", Size: 1}})
	add(message{Kind: probes, Tokens: []string{"a", "../b"}}, message{Kind: verify, ID: id, File: &checkpoint.File{Name: "../x"}})
	add(message{Kind: list}, message{Kind: retain, Keep: -4}, message{Kind: commit, ID: id, Body: []byte("x")}, message{Kind: bye})
	add(message{Kind: chosen, Body: []byte("x")}, message{Kind: chosen})
	add(message{Kind: reported}, message{Kind: reported, ID: id, Report: &report{}}, message{Kind: answer, Number: 7}, message{Kind: leave}, message{Kind: restored})
	root := f.TempDir()
	secret := filepath.Join(root, "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := lone(t, filepath.Join(root, "store"), patience.Limit)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stranger := newMember(worker(1), message{})
		for len(b) > 2 {
			n := min(int(b[0])|int(b[1])<<8, len(b)-2)
			var m message
			err := json.Unmarshal(b[2:2+n], &m)
			b = b[2+n:]
			if err == nil {
				d.handle(ctx, m) // an error would normally end the connection; here the next message follows
				d.chief.handle(stranger, m)
			}
		}
		cancel()
		d.Close()
		if all, err := filepath.Glob(filepath.Join(root, "*")); err != nil || !reflect.DeepEqual(all, []string{secret, filepath.Join(root, "store")}) {
			t.Fatalf("%q, %v", all, err)
		}
	})
}
