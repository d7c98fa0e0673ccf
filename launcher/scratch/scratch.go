// Package scratch creates temporary folders on the machine where plx runs.
// They are always removed in the end, even if plx is killed.
//
//	folder, err := scratch.New()
//	if err != nil {
//		return err
//	}
//	defer folder.Remove()
//
// A folder is created in the system's folder for temporary files, or in
// ~/.plx/scratch if the system's folder has no room or is not writable. A
// process holds a file lock on its folder while it uses it. [Tidy] removes the
// folders that no process has locked. Tidy skips folders of other users, and
// of other machines that share the file system, because it cannot see their
// locks.
package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/filelock"
)

// Folder is a temporary folder.
type Folder struct {
	Path string
	lock *os.File // the opened folder, which carries the file lock
}

// maxTries is how often New retries if Tidy in another process removes the new
// folder before New has locked it.
const maxTries = 100

// New creates and locks a temporary folder.
func New() (*Folder, error) {
	start, err := prefix()
	if err != nil {
		return nil, err
	}
	dir := Place(minFree)
	for range maxTries {
		path, err := os.MkdirTemp(dir, start)
		if err != nil {
			return nil, fmt.Errorf("make a temporary folder: %w", err)
		}
		lock, err := os.Open(path)
		if err == nil && filelock.Lock(lock, path) {
			return &Folder{path, lock}, nil
		}
		if err == nil {
			lock.Close() // The folder was only opened for its lock, so an error of Close loses nothing.
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(fmt.Errorf("make a temporary folder: %w", err), os.Remove(path))
		}
	}
	return nil, fmt.Errorf("make a temporary folder in %s: another process removes it each time", dir)
}

// Hold passes the lock of the folder to the command, which is not started yet.
// A command that writes into the folder may outlive this process; the folder
// then stays locked until the command ends.
func (f *Folder) Hold(cmd *exec.Cmd) { cmd.ExtraFiles = append(cmd.ExtraFiles, f.lock) }

// Remove deletes the folder and releases its lock. It does nothing if f is
// nil.
func (f *Folder) Remove() error {
	if f == nil {
		return nil
	}
	err := os.RemoveAll(f.Path)
	f.lock.Close() // The folder was only read, so an error of Close loses nothing.
	return err
}

// Tidy removes the folders of processes that were killed before they could
// remove them. It ignores errors.
func Tidy() {
	start, err := prefix()
	if err != nil {
		return
	}
	for _, dir := range places() {
		entries, _ := os.ReadDir(dir) // skip a folder that cannot be read
		for _, e := range entries {
			// Only digits may follow the prefix. A folder with other
			// characters after the prefix belongs to a machine whose host name
			// begins with this machine's name.
			if n, ours := strings.CutPrefix(e.Name(), start); ours && strings.Trim(n, "0123456789") == "" {
				tidy(filepath.Join(dir, e.Name()))
			}
		}
	}
}

func tidy(path string) {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Geteuid() {
		return
	}
	folder, err := os.Open(path)
	if err != nil {
		return
	}
	defer folder.Close() // the folder was only read, so an error of Close loses nothing
	if unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = os.RemoveAll(path) // if this fails, a later Tidy tries again
	}
}

// prefix returns the text with which the names of all scratch folders of this
// machine begin.
func prefix() (string, error) {
	host, err := os.Hostname()
	return "plx-scratch-" + host + "-", err
}

// minFree is the free space in bytes that the parent folder of a new Folder must
// have.
const minFree = 1 << 20

// Place returns a parent folder for temporary files of size bytes in all. It
// prefers the system's folder for temporary files. If that folder is missing,
// not writable or has no room, Place returns ~/.plx/scratch if that folder is
// usable.
func Place(size int64) string {
	all := places()
	for i, dir := range all {
		if i > 0 && os.MkdirAll(dir, 0o700) != nil {
			continue
		}
		if hasRoom(dir, size) {
			return dir
		}
	}
	return all[0]
}

func places() []string {
	all := []string{os.TempDir()}
	if home := os.Getenv("HOME"); home != "" {
		all = append(all, filepath.Join(home, ".plx", "scratch"))
	}
	return all
}

// hasRoom reports whether the folder is writable and has room for size bytes.
func hasRoom(dir string, size int64) bool {
	if unix.Access(dir, unix.W_OK|unix.X_OK) != nil {
		return false
	}
	var disk unix.Statfs_t
	if unix.Statfs(dir, &disk) != nil || disk.Bsize <= 0 {
		return true // the free space is unknown, so assume that there is enough
	}
	full := disk.Files > 0 && disk.Ffree == 0
	return !full && uint64(disk.Bavail) >= uint64(size)/uint64(disk.Bsize)
}
