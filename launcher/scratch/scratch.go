// Package scratch makes temporary folders of the launching machine of which nothing stays,
// whatever ends plx.
//
//	folder, err := scratch.New()
//	if err != nil {
//		return err
//	}
//	defer folder.Remove()
//
// A folder lies in that for temporary files, or in ~/.plx/scratch if that one takes nothing. It
// is locked as long as a process has it, and [Tidy] removes folders that no process has. It
// leaves those of other users and of other machines, whose locks it cannot see.
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
	lock *os.File // the folder itself
}

// tries is how often New begins again after Tidy of another process has been faster than its lock.
const tries = 100

// New makes a Folder.
func New() (*Folder, error) {
	start, err := prefix()
	if err != nil {
		return nil, err
	}
	dir := Place(least)
	for range tries {
		path, err := os.MkdirTemp(dir, start)
		if err != nil {
			return nil, fmt.Errorf("make a temporary folder: %w", err)
		}
		lock, err := os.Open(path)
		if err == nil && filelock.Lock(lock, path) {
			return &Folder{path, lock}, nil
		}
		if err == nil {
			lock.Close() // only read
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(fmt.Errorf("make a temporary folder: %w", err), os.Remove(path))
		}
	}
	return nil, fmt.Errorf("make a temporary folder in %s: another process removes it each time", dir)
}

// Hold has a command that is to start keep the folder until it has ended too: it may outlive
// this process, and writes into it.
func (f *Folder) Hold(cmd *exec.Cmd) { cmd.ExtraFiles = append(cmd.ExtraFiles, f.lock) }

// Remove removes the folder. A nil Folder is none.
func (f *Folder) Remove() error {
	if f == nil {
		return nil
	}
	err := os.RemoveAll(f.Path)
	f.lock.Close() // only read
	return err
}

// Tidy removes folders whose processes have ended without doing that, as after kill -9. What it
// cannot remove it leaves.
func Tidy() {
	start, err := prefix()
	if err != nil {
		return
	}
	for _, dir := range places() {
		entries, _ := os.ReadDir(dir) // what cannot be read is not tidied
		for _, e := range entries {
			// Digits alone follow, else it is one of a machine with a longer name.
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
	defer folder.Close() // only read
	if unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = os.RemoveAll(path) // else the next one does
	}
}

// prefix begins the names of this machine's folders.
func prefix() (string, error) {
	host, err := os.Hostname()
	return "plx-scratch-" + host + "-", err
}

// least is how much room a place must have to be taken.
const least = 1 << 20

// Place returns the folder for temporary files that will have size bytes: that of the system, or
// ~/.plx/scratch if that one is not there, cannot be written or has no room, and this one has.
func Place(size int64) string {
	all := places()
	for i, dir := range all {
		if i > 0 && os.MkdirAll(dir, 0o700) != nil {
			continue
		}
		if takes(dir, size) {
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

// takes reports whether size bytes can be written into a folder.
func takes(dir string, size int64) bool {
	if unix.Access(dir, unix.W_OK|unix.X_OK) != nil {
		return false
	}
	var disk unix.Statfs_t
	if unix.Statfs(dir, &disk) != nil || disk.Bsize <= 0 {
		return true // nothing is known of its room
	}
	full := disk.Files > 0 && disk.Ffree == 0
	return !full && uint64(disk.Bavail) >= uint64(size)/uint64(disk.Bsize)
}
