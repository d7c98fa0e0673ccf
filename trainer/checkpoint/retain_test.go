package checkpoint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// half writes one file of each checkpoint, but no manifest, as a save that
// never finishes.
func half(t testing.TB, f *Folder, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, _, err := f.Write(id, names[0], filling(content(id, names[0]))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRetain(t *testing.T) {
	other := formatID(20, 0, "00000000") // a second checkpoint of the same step
	for name, test := range map[string]struct {
		prepare func(f *Folder)
		keep    int
		busy    string
		left    []string
	}{
		"nothing there":      {func(f *Folder) {}, 1, "", nil},
		"fewer than wanted":  {func(f *Folder) { saved(t, f, id(10), id(20)) }, 3, "", []string{id(20), id(10)}},
		"more than wanted":   {func(f *Folder) { saved(t, f, id(10), id(20), id(30), id(40)) }, 2, "", []string{id(40), id(30)}},
		"older unfinished":   {func(f *Folder) { half(t, f, id(5), id(15)); saved(t, f, id(10), id(20)) }, 2, "", []string{id(20), id(10)}},
		"unfinished, equal":  {func(f *Folder) { half(t, f, other); saved(t, f, id(20)) }, 2, "", []string{id(20)}},
		"newer unfinished":   {func(f *Folder) { saved(t, f, id(10), id(20)); half(t, f, id(30)) }, 1, "", []string{id(30), id(20)}},
		"only unfinished":    {func(f *Folder) { half(t, f, id(10), id(20)) }, 1, "", []string{id(20), id(10)}},
		"busy":               {func(f *Folder) { half(t, f, id(10), id(11)); saved(t, f, id(20)) }, 1, id(10), []string{id(20), id(10)}},
		"busy and finished":  {func(f *Folder) { saved(t, f, id(10), id(20)) }, 1, id(10), []string{id(20), id(10)}},
		"being written now":  {func(f *Folder) { saved(t, f, id(20)); half(t, f, id(10)); later(t, f, id(10)) }, 1, "", []string{id(20), id(10)}},
		"damaged and newest": {func(f *Folder) { saved(t, f, id(10), id(20), id(30)); cut(t, f, id(30), manifestName) }, 1, "", []string{id(30), id(20)}},
		"damaged and older": {func(f *Folder) {
			saved(t, f, id(10))
			cut(t, f, id(10), manifestName)
			saved(t, f, id(20))
		}, 2, "", []string{id(20)}},
		"a file cut short": {func(f *Folder) { saved(t, f, id(10), id(20), id(30)); cut(t, f, id(30), names[1]) }, 1, "", []string{id(30), id(20)}},
		"files are on another host": {func(f *Folder) { saved(t, f, id(10), id(20)); gone(t, f, id(20), names[1]) },
			1, "", []string{id(20)}},
	} {
		f := open(t, t.TempDir())
		test.prepare(f)
		before := ids(listed(t, f))
		removed, err := f.Retain(test.keep, test.busy)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if left := ids(listed(t, f)); !slices.Equal(left, test.left) {
			t.Errorf("%s: left are %v, want %v", name, left, test.left)
		}
		if all := append(slices.Clone(removed), test.left...); !sameNames(all, before) {
			t.Errorf("%s: removed %v of %v, left %v", name, removed, before, test.left)
		}
	}
	if _, err := open(t, t.TempDir()).Retain(0, ""); err == nil || !strings.Contains(err.Error(), "keep 0 checkpoints: want at least 1") {
		t.Error(err)
	}
}

func sameNames(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

func cut(t testing.TB, f *Folder, id, name string) {
	t.Helper()
	if err := os.Truncate(filepath.Join(f.dir, id, name), 100); err != nil {
		t.Fatal(err)
	}
}

func gone(t testing.TB, f *Folder, id, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(f.dir, id, name)); err != nil {
		t.Fatal(err)
	}
}

// later sets the modification time of a checkpoint's first file after that of
// all others.
func later(t testing.TB, f *Folder, id string) {
	t.Helper()
	at := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(f.dir, id, names[0]), at, at); err != nil {
		t.Fatal(err)
	}
}

// TestRetainAfterRestartFromOlderStep resumes from step 10, as a job does if
// the checkpoints of higher steps have wrong checksums. Retain sees only their
// sizes, which are right. It must not remove the new checkpoints in favour of
// those.
func TestRetainAfterRestartFromOlderStep(t *testing.T) {
	f := open(t, t.TempDir())
	saved(t, f, id(10), id(30), id(40), id(50))
	for step := uint64(11); step <= 15; step++ {
		again := formatID(step, 1, "00000000")
		var files []File
		for _, name := range names {
			size, sum, err := f.Write(again, name, filling(content(again, name)))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, File{Name: name, Task: "worker:0", Size: size, Sum: sum})
		}
		m := manifest(again, files...)
		m.Time = epoch.Add(time.Hour + time.Duration(step)*time.Second)
		if err := f.WriteManifest(m); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Retain(3, ""); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{id(50), id(40), id(30), formatID(15, 1, "00000000"), formatID(14, 1, "00000000"), formatID(13, 1, "00000000")}
	if left := ids(listed(t, f)); !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
}

func TestDiscard(t *testing.T) {
	f := open(t, t.TempDir())
	saved(t, f, id(10), id(20))
	half(t, f, id(30))
	cut(t, f, id(20), manifestName)
	for range 2 { // Discard must also succeed the second time, when nothing exists
		if err := f.Discard(id(30)); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{id(10), id(20)} {
		if err := f.Discard(id); err == nil || !strings.Contains(err.Error(), "it has a manifest") {
			t.Error(err)
		}
	}
	if err := f.Discard("../x"); err == nil {
		t.Error("discards anything")
	}
	if left := ids(listed(t, f)); !slices.Equal(left, []string{id(20), id(10)}) {
		t.Error(left)
	}
}

// TestRetainReportsOnlyRemovedFolders has a folder that cannot be removed, as
// on NFS while another host has a file of it open.
func TestRetainReportsOnlyRemovedFolders(t *testing.T) {
	f := open(t, t.TempDir())
	saved(t, f, id(10), id(20))
	f.hook = func(name string) error {
		if _, err := os.Lstat(filepath.Join(f.dir, id(10), manifestName)); err == nil || name != "checkpoint.remove" {
			return nil
		}
		return os.WriteFile(filepath.Join(f.dir, id(10), ".nfs0001"), nil, 0o600)
	}
	if removed, err := f.Retain(1, ""); err != nil || len(removed) > 0 {
		t.Errorf("removed %v, %v", removed, err)
	}
	if h := listed(t, f)[1]; h.Manifest != nil || offered(t, f) != id(20) {
		t.Errorf("%+v", h)
	}
}
