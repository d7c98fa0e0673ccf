// Package filelock locks files between processes with flock(2). A lock ends
// when the file is closed in every process that has it open:
//
//	if filelock.Lock(f, path) {
//		defer f.Close() // releases the lock
//	}
//
// On a file system that does not support locks, Lock succeeds for every
// process. A caller that must detect this calls flock itself.
package filelock

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Lock takes an exclusive lock on the open file or folder f, without waiting.
// The lock lasts until f is closed. Lock returns false if another process
// holds the lock, or if path no longer names f because another process has
// replaced the file.
func Lock(f *os.File, path string) bool {
	if errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return false
	}
	mine, err := f.Stat()
	there, gone := os.Lstat(path)
	return err == nil && gone == nil && os.SameFile(mine, there)
}

// Locked reports whether a process holds a lock on the file at path. If there
// is no such file, it returns false.
func Locked(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() // Close releases the lock that Locked may have taken
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
