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

// Use is the use of ~/.plx by this process, until it ends. While one process uses it, no other
// can remove it as a whole. It is a lock of the file ~/.plx/lock. A file system without locks has none.
type Use struct{ fd int }

// LockName is the name of the lock below ~/.plx. Who removes ~/.plx removes it last.
const LockName = "lock"

// LeavingMark begins the names of what is being removed.
const LeavingMark = ".leaving-"

// enterTime bounds the wait for the end of a removal. It is less than what the launcher waits for
// an agent to begin.
const enterTime = 15 * time.Second

// Enter begins to use ~/.plx, which may have to wait until another process has removed something. If
// this executable was removed meanwhile, the launcher has to send it again: that is the error.
func Enter() (*Use, error) {
	dir, err := Root()
	if err != nil {
		return &Use{-1}, nil // the first call says it
	}
	// Not an os.File, which is closed when nobody refers to it any more.
	fd, err := unix.Open(filepath.Join(dir, LockName), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	u := &Use{fd}
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
		return nil, errors.New("plx was just removed there, by plx prune")
	}
	return u, nil // without a lock where there can be none: a full disk, some network file systems
}

// removed reports whether this executable is being removed, or is gone.
func removed() bool {
	own, _ := os.Readlink("/proc/self/exe") // Linux follows its renames
	return strings.Contains(own, "/"+LeavingMark) || strings.HasSuffix(own, " (deleted)")
}

// Alone reports whether no other process uses ~/.plx, and keeps others from it until this one ends, or
// calls Share.
func (u *Use) Alone() bool {
	err := u.lock(unix.LOCK_EX)
	if errors.Is(err, unix.EWOULDBLOCK) {
		u.Share() // Linux gives the old lock up
		return false
	}
	return true
}

// Share lets other processes use ~/.plx again.
func (u *Use) Share() { _ = u.lock(unix.LOCK_SH) } // only who is alone excludes it, for a moment

func (u *Use) lock(how int) error { return unix.Flock(u.fd, how|unix.LOCK_NB) }
