package logs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Source identifies one output stream of one task. It can be compared with ==.
type Source struct {
	Task   string `json:"task"` // name of the task, such as "worker:3" or "ps:0", or a role without index
	Stream Stream `json:"stream"`
}

// Stream is one of the two output streams of a task: Stdout or Stderr.
type Stream uint8

const (
	Stdout Stream = iota
	Stderr
)

// Chunk is a sequence of consecutive bytes of one source (output stream of a
// task), or a report of dropped bytes. A chunk with neither Data nor Dropped
// announces a source and its first offset; its time has no meaning.
type Chunk struct {
	Source
	Offset int64     // offset of Data[0] in the source, in bytes since the job began
	Time   time.Time // when the first byte of Data was written, exact to about 10 ms
	Data   []byte

	// Dropped is the number of bytes, counted from Offset, that the host has
	// deleted because the task's log reached its size limit (--log-limit). A
	// chunk with Dropped has no Data. 0 means that no bytes were dropped.
	Dropped int64

	// Restart is true if Data begins the output of a new generation (restart)
	// of the task. A line that is unfinished before Data will not be
	// completed.
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

// MarshalText encodes the stream as "stdout" or "stderr" for JSON.
func (s Stream) MarshalText() ([]byte, error) {
	return []byte(s.String()), nil
}

// UnmarshalText decodes "stdout" or "stderr".
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

// String returns the task and stream of the source, such as "worker:3 stderr".
func (s Source) String() string {
	return s.Task + " " + s.Stream.String()
}

// file returns the file name for the source's output, such as
// "worker-3.stderr".
func (s Source) file() string {
	return strings.Replace(s.Task, ":", "-", 1) + "." + s.Stream.String()
}

// sourceOf parses a file name that Source.file returned.
func sourceOf(name string) (Source, bool) {
	task, ext, _ := strings.Cut(name, ".")
	src := Source{Task: strings.Replace(task, "-", ":", 1)}
	if src.Stream.UnmarshalText([]byte(ext)) != nil || !validTask(src.Task) {
		return Source{}, false
	}
	return src, true
}

// taskName matches a task name: a role of lower-case letters and digits, and
// an optional index after a colon. It must be strict, because a name received
// from a host becomes part of a file name and is printed on a terminal.
var taskName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9]*(:[0-9]+)?$`) })

func validTask(task string) bool { return len(task) <= maxTask && taskName().MatchString(task) }

// check returns an error if the source's task name or stream is invalid.
func (s Source) check() error {
	if !validTask(s.Task) {
		return fmt.Errorf("task name %q: want ROLE:INDEX such as worker:3", s.Task)
	}
	if s.Stream > Stderr {
		return fmt.Errorf("task %s: unknown stream %d", s.Task, s.Stream)
	}
	return nil
}

// Request selects the logged output that a receiver wants from a host. It is
// sent as JSON. The zero value requests none of the output logged so far;
// TailLines -1 requests all of it.
type Request struct {
	Tasks     []string   `json:"tasks,omitempty"`  // names of the tasks to send, such as worker:3; an empty slice means all tasks
	From      []Position `json:"from,omitempty"`   // offsets at which to continue after a lost connection; empty in a first request
	TailLines int        `json:"tail_lines"`       // number of last lines to send of each source; -1 means all lines
	Since     time.Time  `json:"since,omitzero"`   // skip lines that were finished before this time; the zero time skips none
	Follow    bool       `json:"follow,omitempty"` // keep sending new output while the job runs
}

// Position is the offset at which a receiver wants to continue one source
// (output stream of a task). If a Request has any Position, it ignores
// TailLines and Since, and sources without a Position start at their first
// byte.
type Position struct {
	Source
	Offset int64 `json:"offset"`
}

// check returns an error if the request has an invalid task name or offset.
func (r Request) check() error {
	for _, task := range r.Tasks {
		if err := (Source{Task: task}).check(); err != nil {
			return err
		}
	}
	for _, p := range r.From {
		if err := p.Source.check(); err != nil {
			return err
		}
		if p.Offset < 0 {
			return fmt.Errorf("%s: negative offset %d", p.Source, p.Offset)
		}
	}
	return nil
}

// whole returns the request without TailLines and Since, so that it selects
// all logged output from the first byte.
func (r Request) whole() Request {
	r.TailLines, r.Since = -1, time.Time{}
	return r
}

// from returns the offset at which the request continues src. The result is
// false for a first request, which has no positions.
func (r Request) from(src Source) (int64, bool) {
	for _, p := range r.From {
		if p.Source == src {
			return p.Offset, true
		}
	}
	return 0, len(r.From) > 0
}

// Cursor records how many bytes of each source (output stream of a task) on
// each host have been received. The zero value means that no bytes were
// received. Its methods may be called from any goroutine.
type Cursor struct {
	mu   sync.Mutex
	next map[origin]int64 // by host and output stream of a task: offset of the first byte not received yet
	seen map[string]int   // by host: number of its sources (output streams of tasks) seen so far
}

// maxSources is the greatest number of sources (output streams of tasks) that
// a Cursor accepts from one host, so that a malicious host cannot exhaust
// memory. It is generous, because tasks may get other names when a job
// restarts.
const maxSources = 4096

// Expect returns an [ErrMalformed] if the host has sent output of maxSources
// sources (output streams of tasks) and c is from a further one.
func (k *Cursor) Expect(host string, c Chunk) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.next[origin{host, c.Source}]; !known && k.seen[host] >= maxSources {
		return fmt.Errorf("%w: the host has sent more than %d streams of tasks", ErrMalformed, maxSources)
	}
	return nil
}

// dropNotice returns the line that a user sees instead of the bytes that c
// reports as dropped.
func (c Chunk) dropNotice() string {
	return fmt.Sprintf("plx: %d bytes are missing here: the oldest output was dropped (--log-limit)", c.Dropped)
}

// fileBytes returns the bytes that a log file stores for c. For dropped bytes it
// returns one line that reports their number.
func (c Chunk) fileBytes() []byte {
	if c.Dropped > 0 {
		return []byte("\n" + c.dropNotice() + "\n")
	}
	return c.Data
}

// Take returns the part of c that was not received before, which may be empty.
// It counts that part and dropped bytes as received. The first chunk of a
// source may start at any offset. If a later chunk does not continue where the
// chunk before ended, Take returns an error and does not count the chunk.
func (k *Cursor) Take(host string, c Chunk) (Chunk, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	from := origin{host, c.Source}
	next, known := k.next[from]
	if !known {
		next = c.Offset
	}
	if c.Offset > next {
		return Chunk{}, fmt.Errorf("host %s: log of %s: %d bytes are missing at %d",
			host, c.Source, c.Offset-next, next)
	}
	if old := next - c.Offset; old > 0 {
		c.Data = c.Data[min(old, int64(len(c.Data))):]
		c.Dropped = max(c.Dropped-old, 0)
		c.Offset, c.Restart = next, false
	}
	if k.next == nil {
		k.next, k.seen = map[origin]int64{}, map[string]int{}
	}
	if !known {
		k.seen[host]++
	}
	k.next[from] = c.Offset + c.Dropped + int64(len(c.Data))
	return c, nil
}

// Request returns the request to send to host now. If nothing was received
// from the host, Request returns req unchanged. Otherwise the result continues
// the output of each task at the first byte not received.
func (k *Cursor) Request(host string, req Request) Request {
	k.mu.Lock()
	defer k.mu.Unlock()
	var from []Position
	for o, next := range k.next {
		if o.host == host {
			from = append(from, Position{Source: o.Source, Offset: next})
		}
	}
	if len(from) == 0 {
		return req
	}
	slices.SortFunc(from, func(a, b Position) int { return strings.Compare(a.file(), b.file()) })
	req.From = from
	return req.whole()
}
