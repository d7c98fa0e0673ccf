//go:build linux

package jobfolder

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// An interrupted launch leaves a complete working directory or a part of one;
// Unstarted finds both.
func TestUnstarted(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	jobs := filepath.Join(home, ".plx", "jobs")
	for _, dir := range []string{"a/h/work", "b/h/.work-1", "b/h/.work-2", "c/h/work", "d/h/logs"} {
		if err := os.MkdirAll(filepath.Join(jobs, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(Folder(filepath.Join(jobs, "c", "h")).State(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Unstarted()
	slices.Sort(got)
	want := []Folder{Folder(filepath.Join(jobs, "a", "h")), Folder(filepath.Join(jobs, "b", "h"))}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}
