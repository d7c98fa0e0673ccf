package logs

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Source names one stream of one task. It is comparable.
type Source struct {
	Task   string `json:"task"` // "worker:3", "ps:0", or a role without index
	Stream Stream `json:"stream"`
}

// Stream is one of the two output streams of a task.
type Stream uint8

// The streams of a task.
const (
	Stdout Stream = iota
	Stderr
)

// Chunk is a run of bytes of one source. A chunk without Data announces a source
// and its first offset; it has no time.
type Chunk struct {
	Source
	Offset int64     // offset of Data[0] in the source, in bytes since the job began
	Time   time.Time // when the first of these bytes was written, to about 10 ms
	Data   []byte

	// Restart reports whether Data begins a new generation of the task. A line
	// that is unfinished at this point stays unfinished.
	Restart bool
}

// maxTask is the longest name of a task, in bytes.
const maxTask = 40

// String returns "stdout" or "stderr".
func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// MarshalText writes the stream's name, for JSON.
func (s Stream) MarshalText() ([]byte, error) {
	return []byte(s.String()), nil
}

// UnmarshalText reads a stream's name.
func (s *Stream) UnmarshalText(text []byte) error {
	switch string(text) {
	case "stdout":
		*s = Stdout
	case "stderr":
		*s = Stderr
	default:
		return fmt.Errorf("stream %q: want stdout or stderr", text)
	}
	return nil
}

// String returns "worker:3 stderr".
func (s Source) String() string {
	return s.Task + " " + s.Stream.String()
}

// file returns the name of the source's file: "worker-3.stderr".
func (s Source) file() string {
	return strings.Replace(s.Task, ":", "-", 1) + "." + s.Stream.String()
}

// sourceOf is the inverse of file.
func sourceOf(name string) (Source, bool) {
	task, ext, _ := strings.Cut(name, ".")
	src := Source{Task: strings.Replace(task, "-", ":", 1)}
	if src.Stream.UnmarshalText([]byte(ext)) != nil || !validTask(src.Task) {
		return Source{}, false
	}
	return src, true
}

// taskName is a role of lower-case letters and digits with an optional index.
// Names come from the wire and become file names and terminal text.
var taskName = regexp.MustCompile(`^[a-z][a-z0-9]*(:[0-9]+)?$`)

func validTask(task string) bool { return len(task) <= maxTask && taskName.MatchString(task) }

// check returns an error for a source that no file or message may name.
func (s Source) check() error {
	if !validTask(s.Task) {
		return fmt.Errorf("task name %q: want ROLE:INDEX such as worker:3", s.Task)
	}
	if s.Stream > Stderr {
		return fmt.Errorf("task %s: unknown stream %d", s.Task, s.Stream)
	}
	return nil
}
