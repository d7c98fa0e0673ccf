//go:build linux

package jobfolder

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Create makes the folder and writes the secret. A folder that an agent has left
// is used again, but only for generations after those that it may have run:
// least is the first of them.
func (f Folder) Create(secret []byte) (least int, err error) {
	old, err := f.ReadState()
	switch {
	case err == nil && LifeOf(old) != Dead:
		return 0, fmt.Errorf("job %s already has an agent on this host, pid %d", f.Job(), old.Supervisor)
	case err == nil && old.Supervisor == 0: // it never started, and has run nothing
		least = old.Least
	case err == nil:
		least = max(old.Least, old.Generation+1)
	case !errors.Is(err, fs.ErrNotExist):
		return 0, err
	}
	if err := os.MkdirAll(f.Logs(), 0o700); err != nil {
		return 0, fmt.Errorf("make the job's folder: %w", err)
	}
	if err := replace(f.Secret(), []byte(hex.EncodeToString(secret)+"\n")); err != nil {
		return 0, fmt.Errorf("write the job's secret: %w", err)
	}
	return least, nil
}

// replace writes a file that only its owner can read. Other processes see the
// old content or the whole new one.
func replace(path string, content []byte) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-"+hostPid()+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temporary.Name()) // the first error says more
		}
	}()
	_, err = temporary.Write(content)
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// hostPid makes the temporary names of hosts that share a home differ.
func hostPid() string {
	name, err := os.Hostname()
	if err != nil {
		name = "host" // the random part of the name still differs
	}
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(name, "/", "-"), os.Getpid())
}
