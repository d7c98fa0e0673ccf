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

// Output is a pattern for files that a job produces. plx fetch copies these
// files to the user's machine.
type Output struct {
	Pattern string `json:"pattern"`           // glob pattern with *, ? and **, relative to Dir; a folder's name matches all files in the folder
	Dir     string `json:"dir,omitempty"`     // absolute path of a folder; empty means the tasks' working folder
	Implied bool   `json:"implied,omitempty"` // true if plx added the pattern for files that plx's trainer writes; false if the user gave it
}

// ParsePattern checks the user's pattern for an Output and returns it
// normalized, for example without a trailing slash.
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
		return "", errors.New("the pattern is not valid")
	}
	return clean, nil
}

// Matches reports whether the pattern matches the path name or one of the
// folders that contain it.
func (o Output) Matches(name string) bool {
	return doublestar.MatchUnvalidated(o.Pattern, name) || doublestar.MatchUnvalidated(o.Pattern+"/**", name)
}

// Names reports whether the file belongs to this output. A file in
// TelemetryPlace, a folder with an absolute path, belongs only to an output
// with a Dir. Other files belong only to an output without one. Log files
// belong to no output.
func (o Output) Names(file HostOutput) bool {
	return file.Place != LogsPlace && (file.Place == TelemetryPlace) == (o.Dir != "") && o.Matches(file.Path())
}

// FetchRequest asks an agent for files that a job has produced. If Name is
// set, the agent sends the content of that file.
//
// If Name is empty, the agent sends a list with one JSON object per line. The
// objects are of type HostCheckpoint if Checkpoints is set, and of type
// HostOutput if not. While the agent computes the checksum of a large file, it
// sends empty pieces, which keep the connection alive.
type FetchRequest struct {
	HostJob
	// Checkpoints is the name of a checkpoint folder under ~/.plx/ckpt. If it
	// is empty, the request is about the outputs and logs of the job.
	Checkpoints string `json:"checkpoints,omitempty"`
	// Wanted selects the outputs. The zero Wanted selects the files that the
	// --output flags of plx launch name. If Wanted has patterns, the list
	// contains no logs.
	Wanted
	Place string `json:"place,omitempty"` // folder of the file, a value of HostOutput.Place; empty if Name is a path in the checkpoint folder
	Name  string `json:"name,omitempty"`
	// Offset and Size select the bytes of the file to send. A file that has
	// grown since it was listed has more bytes. A Size of 0 selects all bytes.
	Offset  int64        `json:"offset,omitempty"`
	Size    int64        `json:"size,omitempty"`
	Fetched []HostOutput `json:"fetched,omitempty"` // outputs that the user has fetched; the agent records them, and plx prune may then delete them
	Count   bool         `json:"count,omitempty"`   // if true, the agent sends only one FileCounts object, which counts the files
}

// Wanted selects some of the files that a job has produced.
type Wanted struct {
	Made     bool     `json:"made,omitempty"`     // if true, also select files in the job's own folders that match no Output
	Patterns []string `json:"patterns,omitempty"` // if not nil, select the files that match one of these patterns, whether or not they match an Output
}

// FileCounts counts files that a job has created or changed and that the user
// has not fetched since their last change. Files and Bytes are about the files
// in the job's own folders that match no Output.
type FileCounts struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Named is the number of files that match an Output and that the user has
	// not fetched since their last change.
	Named int `json:"named,omitempty"`
}

// HostOutput is a file on a host that a job has produced: an output, or the
// log of one stream of a task.
type HostOutput struct {
	Place    string `json:"place"`            // the folder that contains the file: a task's, such as worker-3 or ps-0, or LogsPlace, SharedPlace or TelemetryPlace
	Name     string `json:"name"`             // slash-separated path in the folder of Place, encoded by EscapeName
	Size     int64  `json:"size"`             // size of the file in bytes
	Modified int64  `json:"modified"`         // time of the last modification, in nanoseconds since 1970
	Sum      string `json:"sum,omitempty"`    // hexadecimal SHA-256 of the content; empty if the agent did not read the file
	Damage   string `json:"damage,omitempty"` // why the file cannot be fetched; empty if it can
	// Lost is true if the user loses data because the file cannot be fetched.
	// It is false for entries without data, such as symbolic links and
	// directories.
	Lost bool `json:"lost,omitempty"`
}

// Path returns the file's path in the folder of Place. It may be truncated if
// Damage is set.
func (o HostOutput) Path() string { return UnescapeName(o.Name) }

// Damaged returns a copy of o with the error's text as its Damage. It sets
// Lost unless the error is fs.ErrNotExist, which means that the file was
// removed after it was listed.
func (o HostOutput) Damaged(err error) HostOutput {
	o.Damage, o.Lost = strings.ToValidUTF8(err.Error(), "?"), !errors.Is(err, fs.ErrNotExist)
	return o
}

// Read returns a copy of o with the size and checksum of the file, as read
// from the disk. If err is not nil, it returns a copy with err as its Damage.
func (o HostOutput) Read(size int64, sum string, err error) HostOutput {
	if err != nil {
		return o.Damaged(err)
	}
	o.Size, o.Sum = size, sum
	return o
}

// Values of HostOutput.Place for files that do not belong to a single task's
// folder.
const (
	LogsPlace      = "logs"      // output of the tasks, in log files as package logs names them
	SharedPlace    = "shared"    // folder that all tasks of a host share
	TelemetryPlace = "telemetry" // folders with absolute paths to which tasks write summaries and timelines
)

// Limits of the list of outputs that a host returns.
const (
	MaxOutputs    = 100_000 // largest number of listed files of one job
	MaxOutputName = 1000    // longest file name in bytes
)

// Pruned is an entry in the reply to a PruneRequest: something that a host
// removed, or a job whose folder the host kept.
type Pruned struct {
	Path  string `json:"path"`  // path relative to ~/.plx
	Bytes int64  `json:"bytes"` // size in bytes of what was removed; for a kept job, size of the files that Outputs counts

	// Outputs is the number of files that the job has produced and the user
	// has not fetched. If it is not 0, the host kept the job's folder. If the
	// host removed the folder, it is 0.
	Outputs int    `json:"outputs,omitempty"`
	Job     string `json:"job,omitempty"`    // ID of the job; empty if Path does not belong to a job
	Folder  string `json:"folder,omitempty"` // name of the folder that the job has on this host
	// Unchecked says why the host could not determine which files the job has
	// produced. In that case the host keeps the job's folder, and Outputs is
	// at least 1. Unchecked is empty if the host could determine them.
	Unchecked string `json:"unchecked,omitempty"`
}

// PruneRequest asks a host to remove the folders of jobs that have ended. It
// also removes files that no job uses any more.
type PruneRequest struct {
	Older   time.Duration `json:"older"`   // remove only what has not changed for this long
	Discard bool          `json:"discard"` // if true, also remove outputs that the user has not fetched
	Dry     bool          `json:"dry"`     // if true, remove nothing and only report what would be removed
	Keep    []string      `json:"keep"`    // IDs of jobs whose folders the host keeps, even if they have no unfetched outputs

	// All asks the host to remove the whole folder ~/.plx, and with Discard
	// also the checkpoints in it. If the host must keep a job, it also keeps
	// the plx executable and the files that the job uses.
	All bool `json:"all,omitempty"`
	// Forgotten lists IDs of jobs whose launch records a real run would have
	// removed before this request. A dry run must not report these records as
	// kept. Forgotten is used only with All.
	Forgotten []string `json:"forgotten,omitempty"`
}

// PruneAnswer lists what the host has removed, and the jobs that it kept
// because the user has not fetched their outputs.
type PruneAnswer struct {
	Items  []Pruned `json:"items"`
	Failed string   `json:"failed,omitempty"` // error at which the removal stopped; empty if there was none

	Busy string `json:"busy,omitempty"` // only with All: nothing was removed because this process or job uses ~/.plx; empty if there is none
	// Rest is a folder under ~/.plx that the agent could not remove
	// completely, because the agent itself runs from it.
	Rest string `json:"left,omitempty"`
}
