// Package filelock locks files between processes, by flock. A lock ends with the processes that have
// the file open:
//
//	if filelock.Lock(f, path) {
//		defer f.Close() // releases the lock
//	}
//
// On a file system without locks Lock locks nothing, and lets every process in. Who must know, asks
// flock itself.
package filelock

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Lock locks an open file or folder for this process until it is closed. False: another process
// has it, or path leads to it no more.
func Lock(f *os.File, path string) bool {
	if errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return false
	}
	mine, err := f.Stat()
	there, gone := os.Lstat(path)
	return err == nil && gone == nil && os.SameFile(mine, there)
}

// Locked reports whether a process has locked the file at path. One that is not there is not locked.
func Locked(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() // releases the lock
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
