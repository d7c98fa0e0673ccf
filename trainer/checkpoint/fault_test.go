package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// crash is the panic value that simulates the death of a process: no code runs
// after it.
type crash struct{}

// crashing calls do and reports whether it panicked with crash.
func crashing(do func() error) (crashed bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			if _, ours := p.(crash); !ours {
				panic(p)
			}
			crashed = true
		}
	}()
	return false, do()
}

// fault makes the n-th call of a folder's hook, counted from 1, return an
// error or crash.
type fault struct {
	n    int
	what error // nil: a crash
	hits int
	at   string // name of the disk operation at which the fault happened; "" means that it has not happened yet
}

func (x *fault) hook(name string) error {
	if x.hits++; x.hits != x.n {
		return nil
	}
	if x.at = name; x.what == nil {
		panic(crash{})
	}
	return x.what
}

var hookNames = []string{"checkpoint.create", "checkpoint.manifest", "checkpoint.remove", "checkpoint.rename",
	"checkpoint.sync", "checkpoint.syncdir", "checkpoint.write"}

// TestFaultAtEachDiskOperation makes each disk operation of a save and a
// Retain fail, one per run. Two checkpoints exist before.
func TestFaultAtEachDiskOperation(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for what, err := range map[string]error{"a full disk": syscall.ENOSPC, "half a write": io.ErrShortWrite, "a crash": nil} {
		seen := map[string]bool{}
		for n := 1; ; n++ {
			x := &fault{n: n, what: err}
			faultAt(t, x, what)
			if x.at == "" {
				break // this run has called the hook fewer than n times: all operations were tested
			}
			seen[x.at] = true
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, hookNames) {
			t.Errorf("%s: happened at %v, want %v", what, got, hookNames)
		}
	}
}

func faultAt(t *testing.T, x *fault, what string) {
	f := open(t, t.TempDir())
	saved(t, f, id(10), id(20))
	half(t, f, id(25))
	f.hook = x.hook
	finished := false
	crashed, err := crashing(func() error {
		if err := save(f, id(30)); err != nil {
			return err
		}
		finished = true
		_, err := f.Retain(1, "")
		return err
	})
	about := fmt.Sprintf("%s at %s, hit %d", what, x.at, x.n)
	if x.what != nil && x.at != "" && (!errors.Is(err, x.what) || !strings.Contains(err.Error(), f.dir)) {
		t.Errorf("%s: the error is %v", about, err)
	}
	if crashed != (x.what == nil && x.at != "") {
		t.Fatalf("%s: crashed: %t", about, crashed)
	}
	left := temporaries(t, f)
	if !crashed && len(left) > 0 {
		t.Errorf("%s: left behind: %v", about, left)
	}

	f = open(t, f.dir)
	// If flushing the folder has failed, the manifest may exist already.
	renamed := x.at == "checkpoint.syncdir" && offered(t, f) == id(30)
	if got := offered(t, f); got != id(20) && !finished && !renamed || got != id(30) && finished {
		t.Errorf("%s: %q is offered, finished: %t", about, got, finished)
	}
	saved(t, f, id(40))
	if _, err := f.Retain(1, ""); err != nil {
		t.Errorf("%s: afterwards: %v", about, err)
	}
	if got := ids(listed(t, f)); !slices.Equal(got, []string{id(40)}) || offered(t, f) != id(40) {
		t.Errorf("%s: afterwards %v are left", about, got)
	}
}

// temporaries returns the files that were never renamed to their final names.
func temporaries(t *testing.T, f *Folder) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(f.dir, "*", ".*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFilesAreFlushedBeforeManifest checks the exact order of disk operations.
// TestPowerLossAtEachDiskOperation cannot replace it, because it simulates a
// disk that loses everything not flushed. A real disk may keep a later removal
// and lose an earlier one.
func TestFilesAreFlushedBeforeManifest(t *testing.T) {
	f := open(t, t.TempDir())
	saved(t, f, id(10))
	var trace []string
	f.hook = func(name string) error {
		trace = append(trace, strings.TrimPrefix(name, "checkpoint."))
		return nil
	}
	saved(t, f, id(20))
	if _, err := f.Retain(1, ""); err != nil {
		t.Fatal(err)
	}
	file := "syncdir create write write sync rename syncdir "
	want := file + file + "manifest " + strings.Replace(file, "write write", "write", 1) +
		"remove syncdir remove remove remove syncdir"
	if got := strings.Join(trace, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestRetainRemovesManifestFirst checks the folder after each removal in
// Retain: as soon as any file of a checkpoint is missing, its manifest must be
// missing too.
func TestRetainRemovesManifestFirst(t *testing.T) {
	f := open(t, t.TempDir())
	saved(t, f, id(10), id(20))
	steps := 0
	f.hook = func(string) error {
		steps++
		for _, h := range listed(t, f) {
			if h.Manifest != nil && len(h.Files) != len(names) {
				t.Errorf("step %d: %s has a manifest and %v", steps, h.ID, h.Files)
			}
		}
		return nil
	}
	if removed, err := f.Retain(1, ""); err != nil || len(removed) != 1 || steps < 5 {
		t.Errorf("%v, %v, %d steps", removed, err, steps)
	}
}

// TestConcurrentWritersUseDifferentTemporaryFiles lets two tasks write the
// same file at the same time.
func TestConcurrentWritersUseDifferentTemporaryFiles(t *testing.T) {
	f := open(t, t.TempDir())
	f.hook = func(name string) error {
		if name != "checkpoint.rename" {
			return nil
		}
		half(t, open(t, f.dir), id(1)) // the temporary file of this second writer has been renamed already
		if left := temporaries(t, f); len(left) != 1 || !strings.HasPrefix(filepath.Base(left[0]), "."+names[0]+".") {
			t.Errorf("got %v, want one temporary file of %s", left, names[0])
		}
		return nil
	}
	half(t, f, id(1))
}
