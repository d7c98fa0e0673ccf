package checkpoint

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestTasksSaveToOneFolderAtOnce lets tasks of several hosts share a folder.
// Each writes its file and the manifest and removes old checkpoints, while the
// others do the same and the next save begins. Another goroutine reads all the
// time.
func TestTasksSaveToOneFolderAtOnce(t *testing.T) {
	const tasks, saves, keep = 4, 25, 2
	dir := t.TempDir()
	begin, done := make(chan struct{}), make(chan struct{})
	var reader, writers sync.WaitGroup
	reader.Go(func() { watchShared(t, dir, begin, done) })
	reported := make([]chan File, saves)
	finished := make([]sync.WaitGroup, saves)
	for s := range saves {
		reported[s] = make(chan File, tasks)
		finished[s].Add(tasks)
	}
	manifests := make([]*Manifest, saves)
	composed := make([]chan struct{}, saves)
	for s := range composed {
		composed[s] = make(chan struct{})
	}
	chief := func(s int) {
		m := manifest(id(uint64(s + 1)))
		for range tasks {
			m.Files = append(m.Files, <-reported[s])
		}
		manifests[s] = m
		close(composed[s])
	}
	for task := range tasks {
		f := open(t, dir)
		writers.Go(func() {
			for s := range saves {
				if task == 0 {
					<-begin
				}
				id, name := id(uint64(s+1)), fmt.Sprintf("worker-%d.safetensors", task)
				size, sum, err := f.Write(id, name, filling([]byte(id+name)))
				if err != nil {
					t.Error(err)
				}
				reported[s] <- File{Name: name, Task: fmt.Sprintf("worker:%d", task), Size: size, Sum: sum}
				if task == 0 {
					chief(s)
				}
				<-composed[s]
				if err := f.WriteManifest(manifests[s]); err != nil {
					t.Error(err)
				}
				finished[s].Done()
				finished[s].Wait() // the chief begins a save only after the previous one has ended
				if _, err := f.Retain(keep, ""); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(done)
	reader.Wait()
	f := open(t, dir)
	if _, err := f.Retain(keep, ""); err != nil {
		t.Error(err)
	}
	if got := ids(listed(t, f)); !slices.Equal(got, []string{id(saves), id(saves - 1)}) || offered(t, f) != id(saves) {
		t.Errorf("left are %v", got)
	}
}

// watchShared lists the folder again and again. Once a checkpoint is finished,
// the newest one must always be intact and never become older. It lets at most
// one save begin between two listings, so that the newest checkpoint is not
// removed while it is verified.
func watchShared(t *testing.T, dir string, begin chan<- struct{}, done <-chan struct{}) {
	defer close(begin)
	f, err := OpenFolder(dir)
	if err != nil {
		t.Error(err)
		return
	}
	last := FolderCopy{}
	for {
		holding, err := f.List()
		if err != nil {
			t.Error(err)
			return
		}
		if i := slices.IndexFunc(holding, func(h FolderCopy) bool { return h.Manifest != nil }); i >= 0 {
			if last.ID != "" && newestFirst(holding[i], last) > 0 {
				t.Errorf("the newest is %s, it was %s", holding[i].ID, last.ID)
			}
			last = holding[i]
			for _, file := range last.Manifest.Files {
				if err := f.Verify(last.ID, file); err != nil {
					t.Error(err)
				}
			}
		} else if last.ID != "" {
			t.Errorf("nothing is finished any more, %s was", last.ID)
		}
		for _, h := range holding {
			if h.Damage != "" && h.Damage != unfinished {
				t.Errorf("%s: %s", h.ID, h.Damage)
			}
		}
		select {
		case <-done:
			return
		case begin <- struct{}{}:
		default:
		}
	}
}

// TestConcurrentRetain lets several goroutines call Retain at the same time,
// so that their removals interleave.
func TestConcurrentRetain(t *testing.T) {
	for range 5 {
		dir := t.TempDir()
		f := open(t, dir)
		for step := range uint64(8) {
			m := manifest(id(step + 1))
			m.Time = epoch.Add(time.Duration(step) * time.Second)
			half(t, f, m.ID)
			if step%3 == 0 {
				continue
			}
			if err := f.WriteManifest(m); err != nil {
				t.Fatal(err)
			}
		}
		var gone [6][]string
		var all sync.WaitGroup
		for i := range gone {
			other := open(t, dir)
			all.Go(func() {
				var err error
				if gone[i], err = other.Retain(2, ""); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got, want := ids(listed(t, f)), []string{id(8), id(6)}; !slices.Equal(got, want) {
			t.Errorf("left are %v, want %v", got, want)
		}
		removed := slices.Concat(gone[:]...)
		slices.Sort(removed)
		want := []string{id(1), id(2), id(3), id(4), id(5), id(7)}
		if got := slices.Compact(removed); !slices.Equal(got, want) {
			t.Errorf("removed are %v, want %v", got, want)
		}
	}
}
