package tree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Each path passed to --copy is in the Folder under its base name, with
// everything below it.
func TestGatherPutsFilesUnderTheirBaseNames(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"data/.gitignore": "x\n", "data/x": "1", "data/deep/y": "2", "other/config.json": "{}", "real": "3"})
	if err := errors.Join(os.Symlink("x", filepath.Join(dir, "data/link")), os.Symlink("real", filepath.Join(dir, "named"))); err != nil {
		t.Fatal(err)
	}
	f, err := Gather(t.Context(), []string{filepath.Join(dir, "data"), filepath.Join(dir, "other/config.json"), filepath.Join(dir, "named")}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"config.json", "data/.gitignore", "data/deep/y", "data/link", "data/x", "named"}; !slices.Equal(files(f.Manifest), want) {
		t.Errorf("gathered %q, want %q", files(f.Manifest), want)
	}
	for p, want := range map[string]string{"data/deep/y": "2", "config.json": "{}", "named": "3"} {
		e, _ := f.Find(p)
		if text, err := os.ReadFile(f.file(e)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", p, text, err)
		}
	}
	if e, found := f.Find("data/link"); !found || e.Kind != Link || e.Target != "x" {
		t.Errorf("the link in the folder is %+v", e)
	}
}

// Gather accepts a file of any size. The cancelled context shows that it would
// have read the file.
func TestGatherTakesLargeFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "large")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, maxScanned+1)); err != nil {
		t.Fatal(err)
	}
	ends, cancel := context.WithCancel(t.Context())
	cancel() // stop before the large file is read, which would take seconds
	if _, err := Gather(ends, []string{file}, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was cancelled", err)
	}
}

func TestGatheredFilesJoinAFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"work/train.py": "", "work/data/x": "", "data/x": "", "more": "1"})
	work := scan(t, filepath.Join(dir, "work"))
	gathered, err := Gather(t.Context(), []string{filepath.Join(dir, "data")}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := work.With(gathered); err == nil || !strings.Contains(err.Error(), "data is in the folder already") {
		t.Errorf("two of one name: %v", err)
	}
	if gathered, err = Gather(t.Context(), []string{filepath.Join(dir, "more")}, Options{}); err != nil {
		t.Fatal(err)
	}
	both, err := work.With(gathered)
	if err != nil || !slices.Equal(files(both.Manifest), []string{"data/x", "more", "train.py"}) {
		t.Fatalf("%q, %v", files(both.Manifest), err)
	}
	// A file deleted from the working directory is omitted; a deleted file
	// that the user has named is an error.
	if err := os.Remove(filepath.Join(dir, "work/train.py")); err != nil {
		t.Fatal(err)
	}
	if both, err = both.Rescan(t.Context(), ""); err != nil || !slices.Equal(files(both.Manifest), []string{"data/x", "more"}) {
		t.Fatalf("%q, %v", files(both.Manifest), err)
	}
	if err := os.Remove(filepath.Join(dir, "more")); err != nil {
		t.Fatal(err)
	}
	if _, err := both.Rescan(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "more: no such file") {
		t.Errorf("vanished: %v", err)
	}
}

func TestGatherRefusesWhatCannotBeSent(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a/x": "", "b/x": "", "out/": ""})
	if err := errors.Join(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600), os.Symlink("../a/x", filepath.Join(dir, "out/link"))); err != nil {
		t.Fatal(err)
	}
	for want, names := range map[string][]string{
		"none: no such file":                 {"none"},
		"x has the same base name":           {"a/x", "b/x"},
		"pipe: it is a named pipe":           {"pipe"},
		`link: the link to "../a/x" leads o`: {"out"},
		"the root folder has no name":        {"../../../../../../../.."},
	} {
		var paths []string
		for _, name := range names {
			paths = append(paths, filepath.Join(dir, name))
		}
		_, err := Gather(t.Context(), paths, Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", names, err, want)
		}
		var h interface{ Hint() string }
		if errors.As(err, &h) && h.Hint() != "" {
			t.Errorf("%q: hint %q about files of patterns, which do not count", names, h.Hint())
		}
	}
}
