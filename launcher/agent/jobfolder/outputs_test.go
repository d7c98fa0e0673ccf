//go:build linux

package jobfolder

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/plx-run/plx/internal/bounded"
)

// Reading a 1 GiB record file fails because of its size.
func TestRecordsAreBounded(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	f, err := Of("j", "h1")
	if err == nil {
		err = os.MkdirAll(string(f), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func() error{
		"state.json":   func() error { _, err := f.ReadState(); return err },
		setupName:      func() error { _, _, err := f.ReadSetup(); return err },
		"fetched.json": func() error { _, err := f.Fetched(); return err },
		"places.json":  func() error { _, err := f.TaskFolders(); return err },
		blobsName:      func() error { _, err := UsedBlobs(nil); return err },
	} {
		path := filepath.Join(string(f), name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<30)); err != nil {
			t.Fatal(err)
		}
		if err := read(); !errors.Is(err, bounded.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TaskFolders returns the job's own folders with today's spelling of HOME, each
// once, whatever spelling was recorded.
func TestPlacesWithAnotherSpellingOfHome(t *testing.T) {
	top := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(top, "real"), 0o700), os.Symlink("real", filepath.Join(top, "link"))); err != nil {
		t.Fatal(err)
	}
	of := func(home string) Folder { return Folder(filepath.Join(top, home, ".plx/jobs/j/h1")) }
	places := []string{of("real").Work(), filepath.Join(of("real").Tasks(), "worker-0"), "/data/jobs/j/h10", "/data"}
	if err := os.MkdirAll(string(of("real")), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(of("link").RecordTaskFolder(of("link").Work()), of("real").RecordTaskFolder(of("real").Work()), of("real").RecordTaskFolder(places[1]), of("link").RecordTaskFolder(places[2]), of("link").RecordTaskFolder("/data")); err != nil {
		t.Fatal(err)
	}
	first, err := of("real").FirstStarts()
	if err != nil || len(first) != len(places) {
		t.Fatalf("begun %v, %v", first, err)
	}
	// An earlier plx recorded each spelling of HOME separately: the earliest
	// time counts.
	old := map[string]int64{of("link").Work(): 5, of("real").Work(): 7, "/gone/.plx/jobs/j/h1/tasks/worker-0": 6, "/data": 8, "/data/jobs/j/h10": 9}
	if err := errors.Join(of("real").writeJSON("places.json", slices.Sorted(maps.Keys(old))), of("real").writeJSON("begun.json", old)); err != nil {
		t.Fatal(err)
	}
	slices.Sort(places)
	for _, home := range []string{"real", "link"} {
		var want []string
		for _, dir := range places {
			want = append(want, of(home).normalize(dir))
		}
		slices.Sort(want)
		dirs, err := of(home).TaskFolders()
		slices.Sort(dirs)
		if err != nil || !slices.Equal(dirs, want) {
			t.Errorf("home %s: places %q, %v, want %q", home, dirs, err, want)
		}
		begun, err := of(home).FirstStarts()
		if err != nil || begun[of(home).Work()] != 5 || begun[filepath.Join(of(home).Tasks(), "worker-0")] != 6 || begun["/data"] != 8 {
			t.Errorf("home %s: begun %v, %v", home, begun, err)
		}
	}
}
