package protocol

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

// Output names files that a job makes.
type Output struct {
	Pattern string `json:"pattern"`           // path below Dir, with *, ? and **; a folder stands for all that is in it
	Dir     string `json:"dir,omitempty"`     // absolute path of a folder; "": where the tasks run
	Implied bool   `json:"implied,omitempty"` // plx has added it, for what its trainer writes
}

// ParsePattern returns the user's pattern for an Output without what means nothing, such as
// a slash at the end.
func ParsePattern(text string) (string, error) {
	clean := path.Clean(text)
	if clean == "." {
		clean = "**"
	}
	switch {
	case text == "":
		return "", errors.New("the pattern is empty")
	case path.IsAbs(text) || text[0] == '~':
		return "", errors.New("a pattern is relative to where the tasks run")
	case clean == ".." || strings.HasPrefix(clean, "../"):
		return "", errors.New("it leads out of the folder where the tasks run")
	case clean[0] == '.':
		return "", errors.New("names that begin with a dot are not fetched")
	case !utf8.ValidString(text) || len(text) > MaxOutputName || !doublestar.ValidatePattern(text):
		return "", errors.New("it is no valid pattern")
	}
	return clean, nil
}

// Matches reports whether the pattern names a path, or a folder that the path is in.
func (o Output) Matches(name string) bool {
	return doublestar.MatchUnvalidated(o.Pattern, name) || doublestar.MatchUnvalidated(o.Pattern+"/**", name)
}

// Names reports whether the pattern names the file. It names no logs.
func (o Output) Names(file HostOutput) bool {
	return file.Place != LogsPlace && (file.Place == TelemetryPlace) == (o.Dir != "") && o.Matches(file.Path())
}

// FetchRequest asks for what a job has made. With a Name it asks for the bytes of a file, and
// else for a list: an object of JSON on each line, with empty pieces while a long file is read.
// The objects are of type HostCheckpoint if Checkpoints is set, and else HostOutput.
type FetchRequest struct {
	HostJob
	// Checkpoints is the name of the checkpoints that are meant: a folder under ~/.plx/ckpt. "": the
	// outputs and logs of the job are meant.
	Checkpoints string `json:"checkpoints,omitempty"`
	// Wanted are the outputs that are meant. An empty one stands for what --output of the
	// launch names. With patterns no logs are.
	Wanted
	Place string `json:"place,omitempty"` // as in HostOutput; "": Name is the path of a file below the folder of the checkpoints
	Name  string `json:"name,omitempty"`
	// Offset and Size bound what is sent of the file, which may have grown; Size 0: all of it.
	Offset  int64        `json:"offset,omitempty"`
	Size    int64        `json:"size,omitempty"`
	Fetched []HostOutput `json:"fetched,omitempty"` // outputs that were fetched: the agent notes that, for a prune
	Count   bool         `json:"count,omitempty"`   // the list is one Made
}

// Wanted chooses among the files that a job has made.
type Wanted struct {
	Made     bool     `json:"made,omitempty"`     // also those in the job's own folders that no Output names
	Patterns []string `json:"patterns,omitempty"` // those that one of them matches, in place of what Output names; nil: none
}

// Made counts files in a job's own folders that the job has made or changed, that no
// Output names, and that nobody has fetched as they are now.
type Made struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Named counts the same of files that an Output names.
	Named int `json:"named,omitempty"`
}

// HostOutput is a file that a job has made on a host, or the log of a stream of a task.
type HostOutput struct {
	Place    string `json:"place"`            // whose folder the file is in: worker-3, ps-0, or one of the names below
	Name     string `json:"name"`             // path below that folder, with slashes, as EscapeName makes it
	Size     int64  `json:"size"`             // bytes
	Modified int64  `json:"modified"`         // when the file was written last, in nanoseconds since 1970
	Sum      string `json:"sum,omitempty"`    // SHA-256, hexadecimal; "": the file was not read
	Damage   string `json:"damage,omitempty"` // why the file cannot be fetched; "": it can
	// Lost tells that the job has made something that cannot be fetched. Otherwise nothing is
	// lost by Damage: it is a link, or no file.
	Lost bool `json:"lost,omitempty"`
}

// Path returns the path on the host. That of a file with a Damage may be cut off.
func (o HostOutput) Path() string { return UnescapeName(o.Name) }

// Damaged returns the output with the error as its Damage. A file that was removed
// meanwhile is not lost.
func (o HostOutput) Damaged(err error) HostOutput {
	o.Damage, o.Lost = strings.ToValidUTF8(err.Error(), "?"), !errors.Is(err, fs.ErrNotExist)
	return o
}

// Read returns the output with the size and the sum that were read, or with the error as
// its Damage.
func (o HostOutput) Read(size int64, sum string, err error) HostOutput {
	if err != nil {
		return o.Damaged(err)
	}
	o.Size, o.Sum = size, sum
	return o
}

// Places of files that are in no task's own folder.
const (
	LogsPlace      = "logs"      // what tasks have printed, in files named as those of package logs
	SharedPlace    = "shared"    // the folder that the tasks of a host share
	TelemetryPlace = "telemetry" // folders of summaries and timelines with an absolute path
)

// Bounds of what a host lists.
const (
	MaxOutputs    = 100_000 // files of one job
	MaxOutputName = 1000    // bytes of a name
)

// Pruned is something that a host removed, or a job that it kept.
type Pruned struct {
	Path  string `json:"path"`  // relative to ~/.plx
	Bytes int64  `json:"bytes"` // size of what was removed; of a kept job, that of Outputs

	// Outputs is the number of files that the job has made and nobody has fetched. The
	// folder of a job with some is kept, unless the files were to be discarded. 0: it was
	// removed.
	Outputs int    `json:"outputs,omitempty"`
	Job     string `json:"job,omitempty"`    // id of the job; "": something else
	Folder  string `json:"folder,omitempty"` // name of the host's folder
	// Unchecked is why it is not known what the job has made: then it is kept, and counts as
	// one file at least. "": it is known.
	Unchecked string `json:"unchecked,omitempty"`
}

// PruneRequest asks for folders of jobs that are over, and what no job uses, to be removed if
// they have not changed for a time.
type PruneRequest struct {
	Older   time.Duration `json:"older"`   // that time
	Discard bool          `json:"discard"` // also files that a job made and nobody has fetched
	Dry     bool          `json:"dry"`     // only tell what would be removed
	Keep    []string      `json:"keep"`    // ids of jobs that are kept, whatever they have made on this host

	// All asks for all of ~/.plx. Discard then means checkpoints too. If something is kept, plx and
	// what the kept jobs use stay with it.
	All bool `json:"all,omitempty"`
	// Forgotten are ids of jobs whose records go too, with All, if they were launched from this home.
	Forgotten []string `json:"forgotten,omitempty"`
}

// PruneAnswer is what was removed, and what was kept because nobody has fetched it.
type PruneAnswer struct {
	Items  []Pruned `json:"items"`
	Failed string   `json:"failed,omitempty"` // why that is not all; "": it is

	Busy string `json:"busy,omitempty"` // with All: what uses ~/.plx, so that nothing was removed; "": nothing does
	// Left is a folder below ~/.plx, of which something could not be removed while the agent runs.
	Left string `json:"left,omitempty"`
}
