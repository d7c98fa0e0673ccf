//go:build linux

package jobfolder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// HomeLock is a lock on ~/.plx that each agent process holds until it ends, so that
// no other process removes the whole folder. It locks the file ~/.plx/lock. On
// a file system without locks it has no effect.
type HomeLock struct{ fd int }

// LockName is the name of the lock file in ~/.plx. "plx prune --all" removes
// this file last.
const LockName = "lock"

// LeavingMark is the prefix of files and folders that a process has renamed
// because it is about to remove them.
const LeavingMark = ".leaving-"

// enterTime is how long LockHome waits for a running "plx prune --all". It is
// shorter than the time that the launching machine allows for the start of an
// agent.
const enterTime = 15 * time.Second

// LockHome locks ~/.plx for this process. It waits while another process
// removes the folder. It fails if that process has removed this executable
// too: the launching machine then has to send plx again.
func LockHome() (*HomeLock, error) {
	dir, err := Root()
	if err != nil {
		return &HomeLock{-1}, nil // HOME is invalid; the first call that needs HOME reports the error
	}
	// The lock must not be an os.File: the garbage collector would close the
	// file and so release the lock.
	fd, err := unix.Open(filepath.Join(dir, LockName), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	u := &HomeLock{fd}
	for began := time.Now(); err == nil; time.Sleep(5 * time.Millisecond) {
		if err = u.lock(unix.LOCK_SH); !errors.Is(err, unix.EWOULDBLOCK) || removed() {
			break
		}
		if time.Since(began) > enterTime {
			return nil, fmt.Errorf("plx prune --all has been removing %s for %s: try again when it has ended", dir, enterTime)
		}
		err = nil
	}
	if removed() {
		return nil, errors.New("plx prune has just removed plx there")
	}
	return u, nil // the lock is missing if the disk is full or the file system has no locks
}

// removed reports whether another process has removed this executable or is
// removing it.
func removed() bool {
	own, _ := os.Readlink("/proc/self/exe") // Linux updates this link when the file is renamed or removed
	return strings.Contains(own, "/"+LeavingMark) || strings.HasSuffix(own, " (deleted)")
}

// Alone tries to make this process's lock exclusive, and reports whether it
// succeeded: no other process holds the lock. Other processes then cannot lock
// ~/.plx until this process ends or calls Share.
func (u *HomeLock) Alone() bool {
	err := u.lock(unix.LOCK_EX)
	if errors.Is(err, unix.EWOULDBLOCK) {
		u.Share() // the failed attempt has released the shared lock
		return false
	}
	return true
}

// Share changes the lock to a shared one, so that other processes can use
// ~/.plx too.
func (u *HomeLock) Share() { _ = u.lock(unix.LOCK_SH) } // fails only while another process holds the exclusive lock for a moment

func (u *HomeLock) lock(how int) error { return unix.Flock(u.fd, how|unix.LOCK_NB) }
