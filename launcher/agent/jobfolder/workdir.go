//go:build linux

package jobfolder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/internal/bounded"
	"github.com/plx-run/plx/launcher/protocol"
)

// Build makes the working directory of a manifest that the tasks share. If there is one already, it stays as it is. It is built
// before the agent is started, since a large folder takes longer than a start may.
func (f Folder) Build(ctx context.Context, id tree.Sum) error {
	files, err := Files()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return err
	}
	return files.Build(ctx, id, f.Work(), nil)
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
// off after it had begun to make their working directories.
func Unstarted() ([]Folder, error) {
	works, err := each("*work*") // Build makes it under the name .work-*
	if err != nil {
		return nil, err
	}
	var all []Folder
	for _, work := range works {
		f := Folder(filepath.Dir(work))
		if slices.Contains(all, f) {
			continue
		}
		if _, err := os.Lstat(f.State()); errors.Is(err, fs.ErrNotExist) {
			all = append(all, f)
		}
	}
	return all, nil
}

// Setup is what --setup has changed, for all tasks of the host. Only the owner can read
// its file: variables may be secret.
type Setup struct {
	Env    []protocol.Raw `json:"env,omitempty"`    // variables that it has set, as NAME=VALUE
	Unset  []string       `json:"unset,omitempty"`  // names of variables that it has removed
	Dir    protocol.Raw   `json:"dir,omitempty"`    // folder to which it went, absolute; "": it stayed
	Mask   *int           `json:"mask,omitempty"`   // for the permissions of new files; nil: unchanged
	Limits []Limit        `json:"limits,omitempty"` // of the kernel, that it has changed
}

// Limit is a limit of the kernel, as setrlimit(2) takes it.
type Limit struct {
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}

const setupName = "setup.json"

// ReadSetup returns what --setup has changed. done is false if it was not run yet.
func (f Folder) ReadSetup() (s Setup, done bool, err error) {
	text, err := bounded.ReadFile(filepath.Join(string(f), setupName), bounded.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, false, fmt.Errorf("read what --setup has changed: %w", err)
	}
	return s, true, nil
}

// RemoveSetup forgets what --setup has changed, for it may hold secrets.
func (f Folder) RemoveSetup() error {
	if err := os.Remove(filepath.Join(string(f), setupName)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// WriteSetup notes what --setup has changed.
func (f Folder) WriteSetup(s Setup) error {
	text, err := json.Marshal(s)
	if err == nil {
		err = replace(filepath.Join(string(f), setupName), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("note what --setup has changed: %w", err)
	}
	return nil
}
