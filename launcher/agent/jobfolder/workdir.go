//go:build linux

package jobfolder

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/plx-run/plx/envsync/tree"
)

// Build makes the working directory of a manifest, with the files of archives, that the
// tasks share. If there is one already, it stays as it is. "agent receive" calls Build
// before the agent is started, since a large folder takes longer than a start may.
func (f Folder) Build(ctx context.Context, id tree.Sum, archives []string) error {
	files, err := Files()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return err
	}
	return files.Build(ctx, id, f.Work(), func(dir string) error { return unpackAll(ctx, archives, dir) })
}

// Discard removes a folder in which no agent was ever started.
func (f Folder) Discard() error {
	if _, err := os.Lstat(f.State()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.RemoveAll(string(f))
	_ = os.Remove(filepath.Dir(string(f))) // fails while it has folders of other hosts or of the launcher
	return err
}

// Unstarted returns the folders in which no agent was ever started: a launch was cut
// off after it had made their working directories.
func Unstarted() ([]Folder, error) {
	works, err := each("work")
	if err != nil {
		return nil, err
	}
	var all []Folder
	for _, work := range works {
		f := Folder(filepath.Dir(work))
		if _, err := os.Lstat(f.State()); errors.Is(err, fs.ErrNotExist) {
			all = append(all, f)
		}
	}
	return all, nil
}
