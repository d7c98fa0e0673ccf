//go:build linux

package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/plx-run/plx/envsync/tree"
)

// A folder whose list of files is not there is not made, also not an empty one.
func TestBuildNeedsTheList(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "work")
	if err := newHost(t).Build(t.Context(), tree.Sum{1}, dir, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want that there is no list of files", err)
	}
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) > 0 {
		t.Errorf("left after the failure: %v, %v", left, err)
	}
}

// Without a place for the folder nothing is made elsewhere.
func TestBuildNeedsTheParent(t *testing.T) {
	h, f := newHost(t), scan(t, project(t))
	send(t, f, h)
	here := t.TempDir()
	t.Chdir(here)
	if err := h.Build(t.Context(), f.ID(), filepath.Join(here, "none", "work"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want that there is no folder", err)
	}
	if left, err := os.ReadDir(here); err != nil || len(left) > 0 {
		t.Errorf("left after the failure: %v, %v", left, err)
	}
}

// A content that gets shorter while it is copied is damaged: the copy comes to an end.
func TestCopyOfAContentThatShrinks(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "from"), "short")
	from, err := os.Open(filepath.Join(dir, "from"))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close() // only read
	to, err := os.Create(filepath.Join(dir, "to"))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close() // nobody needs what is in it
	if _, err := copyAll(int(to.Fd()), int(from.Fd()), 10, false); !errors.As(err, new(*readError)) {
		t.Errorf("%v, want that the content cannot be read", err)
	}
}
