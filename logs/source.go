package logs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
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

// Chunk is a run of bytes of one source, or tells of bytes that were dropped. A chunk
// without either announces a source and its first offset; it has no time.
type Chunk struct {
	Source
	Offset int64     // offset of Data[0] in the source, in bytes since the job began
	Time   time.Time // when the first of these bytes was written, to about 10 ms
	Data   []byte

	// Dropped is the number of bytes from Offset on that the host has dropped, because the
	// spools of the task have a limit. Such a chunk has no Data. 0: none were.
	Dropped int64

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
var taskName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9]*(:[0-9]+)?$`) })

func validTask(task string) bool { return len(task) <= maxTask && taskName().MatchString(task) }

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

// Request names the bytes of a host's spools that a receiver wants. It travels
// as JSON. The zero value requests nothing: TailLines -1 requests everything.
type Request struct {
	Tasks     []string   `json:"tasks,omitempty"`  // names such as worker:3; empty means all tasks
	From      []Position `json:"from,omitempty"`   // offsets at which to continue; empty for a first request
	TailLines int        `json:"tail_lines"`       // number of last lines of each source; -1 means all
	Since     time.Time  `json:"since,omitzero"`   // skip lines finished before this time; zero skips none
	Follow    bool       `json:"follow,omitempty"` // continue while the job runs
}

// Position is the offset at which a receiver continues a source. If a Request has
// any, a source without a Position starts at its first byte, and TailLines and
// Since have no effect.
type Position struct {
	Source
	Offset int64 `json:"offset"`
}

// check returns an error for a request that no receiver sends.
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

// whole returns r for spools that the receiver wants from their first byte.
func (r Request) whole() Request {
	r.TailLines, r.Since = -1, time.Time{}
	return r
}

// from returns the offset at which r continues src, if r continues anything.
func (r Request) from(src Source) (int64, bool) {
	for _, p := range r.From {
		if p.Source == src {
			return p.Offset, true
		}
	}
	return 0, len(r.From) > 0
}

// Cursor remembers how far each source of each host was received. Its zero
// value has received nothing. Any goroutine may use it.
type Cursor struct {
	mu   sync.Mutex
	next map[origin]int64 // by source of a host: offset of the first byte not received
	seen map[string]int   // by host: number of its sources
}

// maxSources bounds the sources of one host: a host that names ever more of them fills
// no memory. A restarted job may give the tasks of a host other names.
const maxSources = 4096

// Expect returns an [ErrMalformed] for a chunk of a host that has named too many sources.
func (k *Cursor) Expect(host string, c Chunk) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.next[origin{host, c.Source}]; !known && k.seen[host] >= maxSources {
		return fmt.Errorf("%w: it names more than %d streams of tasks", ErrMalformed, maxSources)
	}
	return nil
}

// missing describes the bytes of which c tells that they were dropped.
func (c Chunk) missing() string {
	return fmt.Sprintf("plx: %d bytes are missing here: the oldest output was dropped (--log-limit)", c.Dropped)
}

// kept returns the bytes of c in a file: a line stands for those that were dropped.
func (c Chunk) kept() []byte {
	if c.Dropped > 0 {
		return []byte("\n" + c.missing() + "\n")
	}
	return c.Data
}

// Take returns the part of c that was not received before, which may be empty,
// and counts it as received. Dropped bytes count as received. The first chunk of a source may start anywhere,
// a later one that leaves bytes out is an error, and c is not counted.
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

// Request returns req as it is to be sent to host now: unchanged when nothing
// was received from it, else continued at the first byte not received.
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
