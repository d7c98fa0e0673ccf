package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/plx-run/plx/internal/atomicfile"
	"github.com/plx-run/plx/internal/bounded"
	"github.com/plx-run/plx/launcher/event"
	"github.com/plx-run/plx/launcher/submission"
)

// What a job's folder on the launching machine has for reports, beside its record. All files have mode 0600, and
// together at most 10 MB: they go with the record.
const (
	runFile    = "run.json"     // Launched
	eventsFile = "events.jsonl" // as package event writes them
	diffFile   = "run.diff"     // how the program differed from its git commit (--keep-diff)
	courseFile = "course.json"  // course: what the hosts had
)

// Bounds in bytes. With event.MaxFile their sum is under 10 MB.
const (
	// MaxDiff bounds the diff that a launch keeps.
	MaxDiff   = 1 << 20
	maxRun    = 512 << 10
	maxCourse = 6 << 20
)

// Launched is what a launch notes of itself for reports.
type Launched struct {
	Command string `json:"command"` // of the tasks, as a shell takes it, without secrets
	Facts   []Fact `json:"facts"`
	Diff    []byte `json:"-"` // nil: none is kept
}

// Fact is something that runs of one program may differ in.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Save writes what a launch notes, for the job with an id.
func (l Launched) Save(job string) error {
	if text, err := json.Marshal(l); err == nil && len(text) > maxRun {
		l.Facts, l.Command = nil, l.Command[:min(len(l.Command), 64<<10)]
	}
	err := submission.Write(job, runFile, l)
	if err == nil && l.Diff != nil {
		var path string
		if path, err = inFolder(job, diffFile); err == nil {
			err = atomicfile.WriteFile(path, l.Diff, 0o600)
		}
	}
	if err != nil {
		return fmt.Errorf("note what job %s was launched with: %w", job, err)
	}
	return nil
}

// launched reads what Save wrote. found is false if a launch of an older plx wrote nothing, or was cut off.
func launched(job string) (l Launched, found bool) {
	text, err := readFile(job, runFile, 2*maxRun)
	if err != nil || json.Unmarshal(text, &l) != nil {
		return Launched{}, false
	}
	return l, true
}

// diff returns the path of the diff that was kept with the job; empty: none was.
func diff(job string) string {
	path, err := inFolder(job, diffFile)
	if err != nil {
		return ""
	}
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// Events returns what appends to the events of a job that this machine drives.
func Events(job string) (event.Sink, error) {
	path, err := inFolder(job, eventsFile)
	if err != nil {
		return nil, err
	}
	return event.File(path), nil
}

// events reads what Events has appended.
func events(job string) ([]event.Event, error) {
	path, err := inFolder(job, eventsFile)
	if err != nil {
		return nil, err
	}
	return event.ReadFile(path)
}

func inFolder(job, name string) (string, error) {
	jobs, err := submission.Root()
	return filepath.Join(jobs, job, name), err
}

func readFile(job, name string, limit int64) ([]byte, error) {
	path, err := inFolder(job, name)
	if err != nil {
		return nil, err
	}
	return bounded.ReadFile(path, limit)
}

// missing reports whether an error says that a file is not there.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
