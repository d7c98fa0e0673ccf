//go:build linux

package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/envsync/tree"
)

// spare returns a spare folder of a store, in the file system in which the test builds.
func (h *host) spare() Spare { return h.Spare(filepath.Join(h.t.TempDir(), "spare")) }

func (p Spare) mustMake(t *testing.T, f *tree.Folder) {
	t.Helper()
	if err := p.Make(t.Context(), f.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.ready()); err != nil {
		t.Fatal(err)
	}
}

// buildWith builds a folder with a spare one. used tells whether that was taken, by the
// inode of a file that no test changes.
func (h *host) buildWith(p Spare, f *tree.Folder) (dir string, used bool) {
	h.t.Helper()
	before, err := os.Open(filepath.Join(p.ready(), treeName, "big"))
	if err == nil {
		defer before.Close() // open, its inode is that of no other file
	}
	dir = filepath.Join(h.t.TempDir(), "work")
	if err := h.Build(h.t.Context(), f.ID(), dir, Options{Spare: p}); err != nil {
		h.t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) != 1 {
		h.t.Errorf("left beside the folder: %v, %v", left, err)
	}
	after, err := os.Stat(filepath.Join(dir, "big"))
	if err != nil {
		h.t.Fatal(err)
	}
	if before == nil {
		return dir, false
	}
	was, err := before.Stat()
	if err != nil {
		h.t.Fatal(err)
	}
	return dir, os.SameFile(was, after)
}

// same fails the test unless a folder is as it is here, and as Build makes it without a
// spare one.
func (h *host) same(dir string, f *tree.Folder) {
	h.t.Helper()
	got, want := scan(h.t, dir), scan(h.t, h.build(f))
	if got.ID() != want.ID() {
		h.t.Errorf("built\n%v\nwant\n%v", got.Entries, want.Entries)
	}
}

// A folder that is made from a spare one is as one that is made from nothing, whatever
// has changed, and the store is safe from it.
func TestSpare(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"nothing": func(string) error { return nil },
		"a file": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "train.py"), []byte("print(2)\n"), 0o644)
		},
		"a mode": func(dir string) error { return os.Chmod(filepath.Join(dir, "run.sh"), 0o644) },
		"a link": func(dir string) error {
			link := filepath.Join(dir, "pkg", "link")
			return errors.Join(os.Remove(link), os.Symlink("same.py", link))
		},
		"files come and go": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "pkg", "empty")), os.Mkdir(filepath.Join(dir, "new"), 0o755),
				os.WriteFile(filepath.Join(dir, "new", "file"), []byte("new"), 0o600))
		},
		"a folder goes": func(dir string) error { return os.RemoveAll(filepath.Join(dir, "pkg")) },
		"a file becomes a folder": func(dir string) error {
			at := filepath.Join(dir, "run.sh")
			return errors.Join(os.Remove(at), os.Mkdir(at, 0o755), os.WriteFile(filepath.Join(at, "x"), []byte("x"), 0o644))
		},
		"a folder becomes a link": func(dir string) error {
			at := filepath.Join(dir, "hollow")
			return errors.Join(os.Remove(at), os.Symlink("pkg", at))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := project(t)
			h := newHost(t)
			f := scan(t, dir)
			send(t, f, h)
			p := h.spare()
			p.mustMake(t, f)
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			f = scan(t, dir)
			send(t, f, h)
			built, used := h.buildWith(p, f)
			if !used {
				t.Error("the spare folder was not used")
			}
			h.same(built, f)
			if _, err := os.Stat(p.ready()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the spare folder is there still: %v", err)
			}
			// What is done in the folder reaches neither the store nor the next one.
			if err := os.WriteFile(filepath.Join(built, "big"), []byte("broken"), 0o644); err != nil {
				t.Fatal(err)
			}
			p.mustMake(t, f)
			built, used = h.buildWith(p, f)
			if !used {
				t.Error("the second spare folder was not used")
			}
			h.same(built, f)
		})
	}
}

// A spare folder in which anything has changed, or of another boot, is not used.
func TestSpareIsNotUsed(t *testing.T) {
	for name, damage := range map[string]func(p Spare) error{
		"a file was written": func(p Spare) error {
			return os.WriteFile(filepath.Join(p.ready(), treeName, "train.py"), []byte("print(7)\n"), 0o644)
		},
		"and its time set back": func(p Spare) error {
			file := filepath.Join(p.ready(), treeName, "train.py")
			info, err := os.Stat(file)
			if err != nil {
				return err
			}
			return errors.Join(os.WriteFile(file, []byte("print(7)\n"), 0o644), os.Chtimes(file, info.ModTime(), info.ModTime()))
		},
		"a file was added": func(p Spare) error {
			return os.WriteFile(filepath.Join(p.ready(), treeName, "pkg", "more.py"), nil, 0o644)
		},
		"a file was added at the top": func(p Spare) error {
			return os.WriteFile(filepath.Join(p.ready(), treeName, "more.py"), nil, 0o644)
		},
		"a file was removed": func(p Spare) error { return os.Remove(filepath.Join(p.ready(), treeName, "run.sh")) },
		"it is of another boot": func(p Spare) error {
			record := filepath.Join(p.ready(), recordName)
			text, err := os.ReadFile(record)
			if err != nil {
				return err
			}
			return os.WriteFile(record, []byte(strings.Replace(string(text), bootID(), "00000000-0000-0000-0000-000000000000", 1)), 0o600)
		},
		"its record is cut off": func(p Spare) error { return os.Truncate(filepath.Join(p.ready(), recordName), 40) },
		"its manifest is gone": func(p Spare) error {
			id, err := p.record(p.ready())
			return errors.Join(err, os.Remove(p.store.Path(id)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := project(t)
			h := newHost(t)
			f := scan(t, dir)
			send(t, f, h)
			p := h.spare()
			p.mustMake(t, f)
			if err := damage(p); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "other.py"), "print(1)\n")
			f = scan(t, dir)
			send(t, f, h)
			built, used := h.buildWith(p, f)
			if used {
				t.Error("the spare folder was used")
			}
			h.same(built, f)
			p.mustMake(t, f) // in the place of what is left
			if built, used = h.buildWith(p, f); !used {
				t.Error("the second spare folder was not used")
			}
			h.same(built, f)
		})
	}
}

// A process that makes a spare folder may be killed, cancelled or find the disk full at
// any time. Build uses no part of a folder, and the next Make removes it.
func TestSpareIsCutOff(t *testing.T) {
	f := scan(t, project(t))
	h := newHost(t)
	send(t, f, h)
	p := h.spare()

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Make(gone, f.ID()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := os.Stat(p.making()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left after it was cancelled: %v", err)
	}
	// A content that cannot be read ends it as a full disk does.
	entry, _ := f.Find("big")
	if err := os.Remove(h.Path(entry.Sum)); err != nil {
		t.Fatal(err)
	}
	if err := p.Make(t.Context(), f.ID()); err == nil || !strings.Contains(err.Error(), "big") {
		t.Errorf("without a content: %v", err)
	}
	if left, err := os.ReadDir(p.dir); err != nil || len(left) != 1 {
		t.Errorf("left after a failure: %v, %v; want the lock", left, err)
	}
	send(t, f, h)
	// Killed: whatever is in the folder has no record yet, or not its name.
	for _, left := range []string{"tree/train.py", "tree/foreign", "record"} {
		write(t, filepath.Join(p.making(), left), "cut off")
	}
	if built, used := h.buildWith(p, f); used {
		t.Error("a folder that was cut off was used")
	} else {
		h.same(built, f)
	}
	p.mustMake(t, f)
	built, used := h.buildWith(p, f)
	if !used {
		t.Error("the spare folder was not used")
	}
	h.same(built, f)
}

// One process makes a spare folder, and one Build takes it.
func TestSpareOfTwo(t *testing.T) {
	f := scan(t, project(t))
	h := newHost(t)
	send(t, f, h)
	p := h.spare()
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	unlock, err := p.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Make(t.Context(), f.ID()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.ready()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("two processes make it: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	p.mustMake(t, f)
	parent := t.TempDir()
	built := make(chan error, 8)
	for i := range cap(built) {
		go func() {
			built <- h.Build(t.Context(), f.ID(), filepath.Join(parent, string(rune('a'+i))), Options{Spare: p})
		}()
	}
	for range cap(built) {
		if err := <-built; err != nil {
			t.Error(err)
		}
	}
	for i := range cap(built) {
		h.same(filepath.Join(parent, string(rune('a'+i))), f)
	}
}

// A spare folder takes no room that others need.
func TestSpareNeedsPlentyOfRoom(t *testing.T) {
	h := newHost(t)
	p := h.spare()
	var huge tree.Manifest
	for i := range 1000 { // of 4 TiB each
		huge.Entries = append(huge.Entries, tree.Entry{Path: fmt.Sprintf("%03d", i), Kind: tree.File, Size: 1 << 42})
	}
	text := huge.Encode()
	id := tree.Sum(sha256.Sum256(text))
	if err := errors.Join(os.MkdirAll(h.incoming(), 0o700), h.putSmall(text, id)); err != nil {
		t.Fatal(err)
	}
	if err := p.Make(t.Context(), id); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.ready()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
}
