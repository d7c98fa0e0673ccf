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

// Tasks returns the folder that contains the tasks' working folders.
func (f Folder) Tasks() string { return filepath.Join(string(f), "tasks") }

// TaskFolders returns the folders in which tasks of any generation have run,
// each once. Folders inside the job's own folder begin with f, even if the
// environment variable HOME was spelled differently when RecordTaskFolder
// recorded them.
func (f Folder) TaskFolders() (dirs []string, err error) {
	var noted []string
	err = f.readJSON("places.json", &noted)
	for _, dir := range noted {
		if dir = f.normalize(dir); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, err
}

// normalize returns dir with the prefix f if dir is inside the job's own
// folder, or else unchanged. The recorded path may begin differently from f,
// because symbolic links and mounts give the home folder several paths. The
// job's id in the path is enough to recognize the folder.
func (f Folder) normalize(dir string) string {
	if _, below, own := strings.Cut(dir+"/", filepath.Join("/jobs", f.Job(), f.Name())+"/"); own {
		return filepath.Join(string(f), below)
	}
	return dir
}

// RecordTaskFolder records that tasks run in the folder dir, and the time at
// which the first of them starts there. Only the supervisor (the process that
// starts the tasks) calls it, before it starts the first task.
func (f Folder) RecordTaskFolder(dir string) error {
	dirs, err := f.TaskFolders()
	if dir = f.normalize(dir); err != nil || slices.Contains(dirs, dir) {
		return err
	}
	begun, err := f.FirstStarts()
	if err != nil {
		return err
	}
	if begun[dir], err = f.now(); err != nil {
		return err
	}
	return errors.Join(f.writeJSON("begun.json", begun), f.writeJSON("places.json", append(dirs, dir)))
}

// FirstStarts returns, for each of TaskFolders, the time just before its first
// task started, in nanoseconds since 1970. Files that plx sent, or that
// --setup created there, are older. The clock is the file system's, which can
// differ from the host's.
func (f Folder) FirstStarts() (begun map[string]int64, err error) {
	noted := map[string]int64{}
	err = f.readJSON("begun.json", &noted)
	begun = map[string]int64{}
	for dir, at := range noted {
		dir = f.normalize(dir)
		if first, known := begun[dir]; !known || at < first {
			begun[dir] = at
		}
	}
	return begun, err
}

// now returns the current time of the file system's clock, by creating a
// temporary file.
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

// Sent returns the files that --workdir has sent to the folder Work, by
// slash-separated path. It returns nil if no folder was sent, or if the list
// of its files is no longer in the cache.
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
		return nil, nil // "agent gc" has removed the list of files
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

// Fetched returns the job's output files that the user has fetched, with their
// checksums at that time.
func (f Folder) Fetched() (all []protocol.HostOutput, err error) {
	return all, f.readJSON("fetched.json", &all)
}

// WriteFetched replaces the list that Fetched returns.
func (f Folder) WriteFetched(all []protocol.HostOutput) error {
	return f.writeJSON("fetched.json", all)
}

// readJSON decodes a JSON file of the folder and stores the result in the
// argument to, which stays unchanged if the file does not exist.
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
