//go:build linux

package jobfolder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/internal/bounded"
	"github.com/plx-run/plx/launcher/protocol"
)

// Tasks is the folder of the tasks' working folders.
func (f Folder) Tasks() string { return filepath.Join(string(f), "tasks") }

// Places returns the folders in which tasks have run, each once, also those of earlier
// generations. Those in the job's own folder begin with f, however HOME was spelled then.
func (f Folder) Places() (dirs []string, err error) {
	var noted []string
	err = f.readJSON("places.json", &noted)
	for _, dir := range noted {
		if dir = f.spell(dir); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, err
}

// spell returns the path of a folder by today's spelling of HOME, if it is the job's. HOME
// can have several spellings, by links and mounts, or another place. No other folder has the
// job's id in its path: it was noted before the first task ran.
func (f Folder) spell(dir string) string {
	if _, below, own := strings.Cut(dir+"/", filepath.Join("/jobs", f.Job(), f.Name())+"/"); own {
		return filepath.Join(string(f), below)
	}
	return dir
}

// NotePlace notes that a task runs in a folder, before the first one does. Only the
// supervisor calls it.
func (f Folder) NotePlace(dir string) error {
	dirs, err := f.Places()
	if dir = f.spell(dir); err != nil || slices.Contains(dirs, dir) {
		return err
	}
	begun, err := f.Begun()
	if err != nil {
		return err
	}
	if begun[dir], err = f.now(); err != nil {
		return err
	}
	return errors.Join(f.writeJSON("begun.json", begun), f.writeJSON("places.json", append(dirs, dir)))
}

// Begun returns when the first task began to run in each of Places, in nanoseconds since
// 1970 by the clock of the folder's file system. What was sent or set up is older.
func (f Folder) Begun() (begun map[string]int64, err error) {
	noted := map[string]int64{}
	err = f.readJSON("begun.json", &noted)
	begun = map[string]int64{}
	for dir, at := range noted {
		dir = f.spell(dir)
		if first, known := begun[dir]; !known || at < first {
			begun[dir] = at
		}
	}
	return begun, err
}

// now returns the time by the clock of the folder's file system.
func (f Folder) now() (int64, error) {
	file, err := os.CreateTemp(string(f), ".now-*")
	if err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err := errors.Join(err, file.Close(), os.Remove(file.Name())); err != nil {
		return 0, err
	}
	return info.ModTime().UnixNano(), nil
}

// Sent returns the files that --workdir has sent to the folder Work, by their paths with
// slashes. Nil: no folder was sent, or the host no longer knows what was in it.
func (f Folder) Sent(workdir string) (map[string]tree.Entry, error) {
	if workdir == "" {
		return nil, nil
	}
	id, err := tree.ParseSum(workdir)
	if err != nil {
		return nil, err
	}
	files, err := Files()
	if err != nil {
		return nil, err
	}
	manifest, err := files.Manifest(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // "agent gc" has removed the manifest
	}
	if err != nil {
		return nil, fmt.Errorf("read what was sent: %w", err)
	}
	sent := map[string]tree.Entry{}
	for _, e := range manifest.Entries {
		if e.Kind == tree.File {
			sent[e.Path] = e
		}
	}
	return sent, nil
}

// Fetched returns the outputs of the job that were fetched, as they were then.
func (f Folder) Fetched() (all []protocol.HostOutput, err error) {
	return all, f.readJSON("fetched.json", &all)
}

// WriteFetched replaces what Fetched returns.
func (f Folder) WriteFetched(all []protocol.HostOutput) error {
	return f.writeJSON("fetched.json", all)
}

// readJSON reads a file of the folder. A file that is missing leaves to as it is.
func (f Folder) readJSON(name string, to any) error {
	text, err := bounded.ReadFile(filepath.Join(string(f), name), bounded.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

func (f Folder) writeJSON(name string, from any) error {
	text, err := json.Marshal(from)
	if err == nil {
		err = replace(filepath.Join(string(f), name), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
