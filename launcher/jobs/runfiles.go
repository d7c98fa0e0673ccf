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

// Files in the job's folder on the launching machine that reports need, beside
// the record. They have mode 0600, take at most 10 MB in all, and are removed
// together with the record.
const (
	runFile     = "run.json"     // JSON of type Launched
	eventsFile  = "events.jsonl" // the job's events, in the format of package event
	diffFile    = "run.diff"     // diff between the program's files and their git commit (--keep-diff)
	runDataFile = "course.json"  // JSON of type runData: what the hosts have stored about the run
)

// Maximum sizes of these files in bytes. Together with event.MaxFile they are
// below 10 MB.
const (
	// MaxDiff bounds the diff that a launch keeps.
	MaxDiff    = 1 << 20
	maxRun     = 512 << 10
	maxRunData = 6 << 20
)

// Launched is what plx launch stores about a job for reports.
type Launched struct {
	Command string `json:"command"` // the tasks' command line, quoted for a shell and without secrets
	Facts   []Fact `json:"facts"`
	Diff    []byte `json:"-"` // diff to the git commit; nil if the user did not ask for one
}

// Fact is a name and a value, such as a version. Two runs of a program may
// differ in it.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Save writes l to the folder of the job with the given id.
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

// launched reads the file that Launched.Save wrote. found is false if the file
// is missing or damaged, for example because an older plx launched the job.
func launched(job string) (l Launched, found bool) {
	text, err := readFile(job, runFile, 2*maxRun)
	if err != nil || json.Unmarshal(text, &l) != nil {
		return Launched{}, false
	}
	return l, true
}

// diff returns the path of the job's stored diff to its git commit, or "" if
// there is none.
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

// Events returns a sink, which appends events to the event file of a job. It
// is for a job whose driver (the process that controls the job) runs on this
// machine.
func Events(job string) (event.Sink, error) {
	path, err := inFolder(job, eventsFile)
	if err != nil {
		return nil, err
	}
	return event.File(path), nil
}

// events reads the job's events from the file to which the sink of Events
// appends.
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

// missing reports whether err means that a file does not exist.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
