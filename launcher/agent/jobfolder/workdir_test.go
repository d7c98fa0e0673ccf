//go:build linux

package jobfolder

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A launch that was cut off has left a whole working directory or a part of one.
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

// A host keeps the spare working directories of the folders that were launched last, and
// leaves those of other hosts alone.
func TestMostSpares(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	dir := filepath.Join(home, ".plx", "spares")
	begun := time.Now()
	names := []string{"h--oldest", "h--old", "h--c", "h--b", "h--a", "h2--oldest"}
	for i, name := range names {
		if err := os.MkdirAll(filepath.Join(dir, name, "ready", "tree"), 0o700); err != nil {
			t.Fatal(err)
		}
		at := begun.Add(time.Duration(i-10) * time.Hour)
		if err := os.WriteFile(filepath.Join(dir, name, "lock"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeSpares("h", filepath.Join(dir, "h--new")); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	var got []string
	for _, e := range left {
		got = append(got, e.Name())
	}
	if want := []string{"h--a", "h--b", "h--c", "h2--oldest"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q are left, %v, want %q", got, err, want)
	}
}
