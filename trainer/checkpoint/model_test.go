package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// model is a simple model of a checkpoint folder, to compare the real one
// with: which checkpoints were finished, and which were only begun.
type model struct {
	t       *testing.T
	r       *rand.Rand
	f       *Folder
	clock   time.Time
	begun   map[string]int64     // by ID of unfinished checkpoints: model time of the last write
	made    map[string]*Manifest // finished
	finish  int64                // model time at which the last of the existing checkpoints was finished
	history []string
}

// TestAgainstModel does random saves, faults, crashes and Retains, and
// compares the folder with a model after each.
func TestAgainstModel(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	againstModel(t, 0, 6) // few rounds; TestAgainstModelForLong has more
}

func againstModel(t *testing.T, first, seeds uint64) {
	for seed := first; seed < first+seeds; seed++ {
		m := &model{t: t, r: rand.New(rand.NewPCG(seed, 1)), clock: epoch,
			begun: map[string]int64{}, made: map[string]*Manifest{}}
		m.f = open(t, t.TempDir())
		for range 40 {
			m.clock = m.clock.Add(time.Second)
			switch m.r.IntN(4) {
			case 0:
				m.retain()
			default:
				m.save()
			}
			m.settle()
			m.compare()
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(m.history, "\n"))
		}
	}
}

func (m *model) note(format string, args ...any) {
	m.history = append(m.history, fmt.Sprintf(format, args...))
}

// trouble makes a random one of the next disk operations fail or crash.
func (m *model) trouble() *fault {
	x := &fault{n: -1}
	if m.r.IntN(2) == 0 {
		x.n = 1 + m.r.IntN(20)
	}
	if m.r.IntN(2) == 0 {
		x.what = errors.New("trouble")
	}
	m.f.hook = x.hook
	return x
}

// save saves a random step, possibly an older one, as after a restart from an
// older checkpoint. It may stop in the middle even without a fault.
func (m *model) save() {
	id := NewID(uint64(m.r.IntN(20)), m.r.IntN(2))
	parts := m.r.IntN(len(names) + 2)
	m.begun[id] = m.clock.Unix()
	x := m.trouble()
	whole := false
	var man *Manifest
	_, err := crashing(func() error {
		var files []File
		for _, name := range names[:min(parts, len(names))] {
			size, sum, err := m.f.Write(id, name, filling([]byte(id+name)))
			if err != nil {
				return err
			}
			files = append(files, File{Name: name, Task: "worker:0", Size: size, Sum: sum})
		}
		if parts <= len(names) {
			return errors.New("stopped")
		}
		man = manifest(id, files...)
		man.Time = m.clock
		if err := m.f.WriteManifest(man); err != nil {
			return err
		}
		whole = true
		return nil
	})
	m.note("%v save %s, %d parts, fault %d at %q: %v", m.clock.Unix(), id, parts, x.n, x.at, err)
	m.f.hook = open(m.t, m.f.dir).hook
	_, statErr := os.Stat(filepath.Join(m.f.dir, id))
	if errors.Is(statErr, fs.ErrNotExist) {
		delete(m.begun, id)
	}
	// If only the flush of the folder failed, the manifest exists already.
	if whole || x.at == "checkpoint.syncdir" && m.listed(id) {
		delete(m.begun, id)
		m.made[id], m.finish = man, m.clock.Unix()
	}
}

func (m *model) listed(id string) bool {
	return slices.ContainsFunc(listed(m.t, m.f), func(h FolderCopy) bool { return h.ID == id && h.Manifest != nil })
}

func (m *model) retain() {
	keep, busy := 1+m.r.IntN(3), ""
	if all := ids(listed(m.t, m.f)); len(all) > 0 && m.r.IntN(2) == 0 {
		busy = all[m.r.IntN(len(all))]
	}
	goes := m.goes(keep, busy)
	x := m.trouble()
	crashed, err := crashing(func() error { _, err := m.f.Retain(keep, busy); return err })
	m.note("%v retain %d, busy %s, fault %d at %q: %v; should go: %v", m.clock.Unix(), keep, busy, x.n, x.at, err, goes)
	m.f.hook = open(m.t, m.f.dir).hook
	left := listed(m.t, m.f)
	for _, id := range goes {
		i := slices.IndexFunc(left, func(h FolderCopy) bool { return h.ID == id })
		switch {
		case i < 0:
			delete(m.made, id)
			delete(m.begun, id)
		case !crashed && err == nil:
			m.t.Errorf("%s is still there", id)
		case left[i].Manifest == nil && m.made[id] != nil: // half removed
			m.begun[id] = m.made[id].Time.Unix()
			delete(m.made, id)
		}
		if m.emptied(id) {
			m.begun[id] = m.clock.Unix()
		}
	}
	m.finish = 0
	for _, man := range m.made {
		m.finish = max(m.finish, man.Time.Unix())
	}
}

func (m *model) emptied(id string) bool {
	entries, err := os.ReadDir(filepath.Join(m.f.dir, id))
	return err == nil && len(entries) == 0
}

// goes returns the checkpoints that Retain should remove, by the documented
// rule.
func (m *model) goes(keep int, busy string) []string {
	var goes []string
	for id, man := range m.made {
		byStep, byTime := 0, 0
		for _, other := range m.made {
			if newestFirst(FolderCopy{ID: other.ID, Manifest: other}, FolderCopy{ID: id, Manifest: man}) < 0 {
				byStep++
			}
			if other.Time.After(man.Time) {
				byTime++
			}
		}
		if byStep >= keep && byTime >= keep && id != busy {
			goes = append(goes, id)
		}
	}
	for id, written := range m.begun {
		before := false
		for _, other := range m.made {
			before = before || newestFirst(FolderCopy{ID: other.ID, Manifest: other}, FolderCopy{ID: id}) < 0
		}
		if before && written <= m.finish && id != busy {
			goes = append(goes, id)
		}
	}
	return goes
}

// settle sets the modification times of files just written to the model's
// time, which never repeats.
func (m *model) settle() {
	for _, pattern := range []string{"*", "*/*", "*/.*"} {
		paths, err := filepath.Glob(filepath.Join(m.f.dir, pattern))
		if err != nil {
			m.t.Fatal(err)
		}
		for _, path := range paths {
			info, err := os.Lstat(path)
			if err != nil {
				m.t.Fatal(err)
			}
			if info.ModTime().Sub(epoch) < 24*time.Hour && info.ModTime().After(epoch) && !info.IsDir() {
				continue
			}
			at := m.clock
			if written, ok := m.begun[filepath.Base(path)]; ok && info.IsDir() {
				at = time.Unix(written, 0)
			}
			if err := os.Chtimes(path, at, at); err != nil {
				m.t.Fatal(err)
			}
		}
	}
}

// compare checks that the folder lists exactly the checkpoints that are
// finished in the model, and that they are intact.
func (m *model) compare() {
	holding := listed(m.t, m.f)
	if len(holding) != len(m.made)+len(m.begun) {
		m.t.Errorf("%v are there, want %d finished and %d begun", ids(holding), len(m.made), len(m.begun))
	}
	var newest FolderCopy
	for _, h := range holding {
		man := m.made[h.ID]
		if (man == nil) != (h.Manifest == nil) {
			m.t.Errorf("%s: finished: %t, listed as %q", h.ID, man != nil, h.Damage)
		}
		if _, begun := m.begun[h.ID]; man == nil && !begun {
			m.t.Errorf("%s was never begun", h.ID)
		}
	}
	for id, man := range m.made {
		if h := (FolderCopy{ID: id, Manifest: man}); newest.ID == "" || newestFirst(h, newest) < 0 {
			newest = h
		}
	}
	if got := offered(m.t, m.f); got != newest.ID {
		m.t.Errorf("%q is offered, want %q", got, newest.ID)
	}
}
