package filelock

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "77")
	locked(t, path, false) // it is not there
	first, second, asking := open(t, path), open(t, path), open(t, path)
	if err := unix.Flock(int(asking.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	locked(t, path, false) // a shared lock, which Locked takes for a moment, does not count
	if err := asking.Close(); err != nil {
		t.Fatal(err)
	}
	if !Lock(first, path) {
		t.Fatal("a free file was not locked")
	}
	locked(t, path, true)
	locked(t, path, true) // to ask changes nothing
	if Lock(second, path) {
		t.Error("two have the lock")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	locked(t, path, false)
	if !Lock(second, path) {
		t.Error("the lock outlasts the file that was closed")
	}
}

func TestReplacedFileIsNotLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "77")
	gone := open(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if Lock(gone, path) {
		t.Error("a file without a name was locked")
	}
	there := open(t, path)
	if Lock(gone, path) {
		t.Error("a file that was replaced was locked")
	}
	if !Lock(there, path) {
		t.Error("the file in its place was not locked")
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // ignore the error: some tests have already closed the file
	return f
}

func locked(t *testing.T, path string, want bool) {
	t.Helper()
	if got, err := Locked(path); got != want || err != nil {
		t.Errorf("Locked is %v, %v, want %v", got, err, want)
	}
}
