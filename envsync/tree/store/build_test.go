//go:build linux

package store

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/envsync/tree"
)

// Without the manifest Build creates no folder, not even an empty one.
func TestBuildFailsWithoutManifest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "work")
	if err := newHost(t).Build(t.Context(), tree.Sum{1}, dir, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want that there is no list of files", err)
	}
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) > 0 {
		t.Errorf("left after the failure: %v, %v", left, err)
	}
}

// Without the parent folder Build creates nothing.
func TestBuildFailsWithoutParentFolder(t *testing.T) {
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

// If a content is truncated while Build copies it, the copy ends and the
// content counts as damaged.
func TestContentThatShrinksDuringCopyIsDamaged(t *testing.T) {
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
	defer to.Close() // the copy is not used, so an error of Close does not matter
	if _, err := copyAll(int(to.Fd()), int(from.Fd()), 10, false); !errors.As(err, new(*readError)) {
		t.Errorf("%v, want that the content cannot be read", err)
	}
}

// Build does not call finish for an incomplete folder.
func TestBuildCallsFinishOnlyForCompleteFolders(t *testing.T) {
	h, f := newHost(t), scan(t, project(t))
	send(t, f, h)
	entry, _ := f.Find("big")
	keeping(t, h.Path(entry.Sum), flip)
	dir, finished := filepath.Join(t.TempDir(), "work"), 0
	finish := func(string) error { finished++; return nil }
	if err := h.Build(t.Context(), f.ID(), dir, finish); !errors.As(err, new(*tree.DamagedError)) || finished > 0 {
		t.Errorf("%v, and finished %d times", err, finished)
	}
	send(t, f, h)
	if err := h.Build(t.Context(), f.ID(), dir, finish); err != nil || finished != 1 {
		t.Errorf("%v, and finished %d times", err, finished)
	}
}

// limited calls f with a limit on the size of files (RLIMIT_FSIZE), so that
// writes fail as on a full disk.
func limited(t *testing.T, most uint64, f func()) {
	t.Helper()
	var usual unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &usual); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: most, Max: usual.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &usual); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// If the disk is full after a part of a file, no partial file is left, and the
// content does not count as damaged.
func TestFullDisk(t *testing.T) {
	h, f := newHost(t), scan(t, project(t))
	send(t, f, h)
	big, _ := f.Find("big")
	content := large(12, 100<<10)
	sum := tree.Sum(sha256.Sum256(content))
	dir := filepath.Join(t.TempDir(), "work")
	if err := os.Mkdir(filepath.Dir(h.Path(sum)), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	for name, write := range map[string]func() error{
		"a small file": func() error { return h.putSmall(content, sum) },
		"a large file": func() error { return h.Store.put(bytes.NewReader(content), sum, int64(len(content))) },
		"a folder":     func() error { return h.Build(t.Context(), f.ID(), dir, nil) },
	} {
		var err error
		limited(t, 64<<10, func() { err = write() })
		if !errors.Is(err, unix.EFBIG) || errors.As(err, new(*tree.DamagedError)) {
			t.Errorf("%s: %v, want that it is too large", name, err)
		}
	}
	h.noLeftovers()
	if _, err := os.Lstat(h.Path(sum)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the store has a part of a content: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) > 0 {
		t.Errorf("left after the failure: %v, %v", left, err)
	}
	if !h.has(big.Sum, big.Size) {
		t.Error("a right content is gone")
	}
}

// settle fails if the temporary file does not exist.
func TestSettleFailsWithoutTheFile(t *testing.T) {
	h := newHost(t)
	if err := os.MkdirAll(h.incoming(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := h.settle(filepath.Join(h.incoming(), "none"), tree.Sum{1}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want that there is no such file", err)
	}
}
