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

// Build creates the working directory that the tasks share, from the manifest
// with the given id. It does not change a directory that exists. The launcher
// has it built before it starts the agent, because a large folder takes longer
// than the timeout of a start.
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

// RemoveUnstarted removes the job's folder, but only if no agent has ever been started
// in it.
func (f Folder) RemoveUnstarted() error {
	if _, err := os.Lstat(f.State()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.RemoveAll(string(f))
	_ = os.Remove(filepath.Dir(string(f))) // fails if the parent folder also contains the job's folder of another host or of the launcher
	return err
}

// Unstarted returns the job folders in which no agent was ever started,
// because the launch was interrupted while it built the working directory.
func Unstarted() ([]Folder, error) {
	works, err := each("*work*") // the pattern also matches .work-*, the name of the directory during Build
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

// Setup is the environment changes that the job's --setup command has made.
// The tasks start with these changes. The file of the changes has mode 0600,
// because variables may contain secrets.
type Setup struct {
	Env    []protocol.Raw `json:"env,omitempty"`    // variables that --setup has set, as NAME=VALUE
	Unset  []string       `json:"unset,omitempty"`  // names of variables that --setup has removed
	Dir    protocol.Raw   `json:"dir,omitempty"`    // absolute path of the directory to which --setup has changed; "" if it has not changed the directory
	Mask   *int           `json:"mask,omitempty"`   // umask (permissions of new files) that --setup has set; nil if it has set none
	Limits []Limit        `json:"limits,omitempty"` // resource limits (ulimit) that --setup has changed
}

// Limit is a resource limit as in setrlimit(2).
type Limit struct {
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}

const setupName = "setup.json"

// ReadSetup returns the changes that --setup has made. done is false if
// --setup has not run yet.
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

// RemoveSetup deletes the recorded changes of --setup, which may contain
// secrets.
func (f Folder) RemoveSetup() error {
	if err := os.Remove(filepath.Join(string(f), setupName)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// WriteSetup records the changes that --setup has made.
func (f Folder) WriteSetup(s Setup) error {
	text, err := json.Marshal(s)
	if err == nil {
		err = replace(filepath.Join(string(f), setupName), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("record what --setup has changed: %w", err)
	}
	return nil
}
