package logs

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Printer writes the output of tasks to a [Display] as lines, each after a prefix with
// task and host. The tasks' stdout goes to its stdout and their stderr to its stderr.
// Its methods may be called from any goroutine. Chunks of one source must come in
// order.
//
// Printer writes a line in one piece after it is complete. In a pipe its bytes
// are unchanged; on a terminal control sequences are made harmless. A line longer than
// 64 MiB is written in pieces; the prefix of a piece that continues a line ends in +. So
// is an unfinished line while all of them together take more than 256 MiB.
//
// Lines that a program redraws, as progress bars do with carriage returns and movements of the
// cursor, are printed in their last state. On a terminal they have rows of their own until
// then, and so has a line that is not finished for a while.
type Printer struct {
	opts    Options
	display *Display
	columns columns
	limit   int // length of the longest line that is written in one piece, in bytes
	room    int // for the unfinished lines and buffers of all streams, in bytes

	mu        sync.Mutex // guards all below, and every stream
	streams   map[origin]*stream
	memory    int         // what the streams have of room
	lines     int         // number of lines printed so far
	holding   []*unit     // what is held back, in the order of its first lines, see fold.go
	releasing *time.Timer // prints them; valid while there are some
	// unfinished are streams whose unfinished line is to be shown, by the timer showing.
	unfinished []*stream
	showing    *time.Timer // valid while there are some
	err        error       // error of the first failed write, which all later calls return; nil before it
}

// Options configures a Printer.
type Options struct {
	// Hosts and Tasks are the names that set the width of the prefix. Other
	// names are printed too, but not aligned.
	Hosts, Tasks []string
	Grep         *regexp.Regexp // print only lines whose text without colours matches; nil prints all
	Exclude      *regexp.Regexp // leave out lines whose text without colours matches; nil: none
	JSON         bool           // print one JSON object per line, for both streams on stdout
	Only         []string       // patterns of path.Match for the names of tasks to print; empty: all
	NoTasks      bool           // prefixes name the host only
	NoPrefix     bool           // lines have no prefix
	Timestamps   bool           // a line begins with the time of its chunk, in UTC; JSON has that anyway
	Fold         bool           // print what several tasks write to stderr at the same time once
	// Loss returns that of the lines of a message by which a task reports that it lost a
	// peer; "" is none. Folding prints one such line for all tasks. May be nil.
	Loss func(message []string) string
	// Mark begins the lines of stderr that tell more than most users want. They are
	// left out, or with Verbose printed with Plain in the place of Mark. Empty: no line
	// is marked.
	Mark, Plain string
	Verbose     bool
}

// origin is a source on a host.
type origin struct {
	host string
	Source
}

const (
	maxLine = 64 << 20  // longest line written in one piece, in bytes
	maxRoom = 256 << 20 // for all unfinished lines, in bytes: many tasks, or a host that lies, fill no memory
)

// NewPrinter returns a Printer that writes to a display.
func NewPrinter(d *Display, opts Options) *Printer {
	return &Printer{opts: opts, display: d, columns: newColumns(opts), limit: maxLine, room: maxRoom, streams: map[origin]*stream{}}
}

// Chunk prints the lines that c completes and keeps the rest. If c does not
// follow the bytes before it, or begins a new generation, Chunk prints the
// unfinished line as it is. It returns an error if a write failed or c's source
// is invalid.
func (p *Printer) Chunk(host string, c Chunk) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.stream(origin{host, c.Source})
	if err != nil {
		return err
	}
	if s.hidden {
		return nil
	}
	return s.add(c)
}

// flush prints the unfinished line of a source after the source has ended.
func (p *Printer) flush(host string, src Source) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.stream(origin{host, src})
	if err != nil {
		return err
	}
	s.split.flush()
	return s.flush()
}

// Close prints the unfinished lines of all sources, in order of task and host.
// It may be called again.
func (p *Printer) Close() error {
	p.mu.Lock()
	from := slices.SortedFunc(maps.Keys(p.streams), func(a, b origin) int {
		return cmp.Or(strings.Compare(a.file(), b.file()), strings.Compare(a.host, b.host))
	})
	p.mu.Unlock()
	var err error
	for _, o := range from {
		err = cmp.Or(err, p.flush(o.host, o.Source)) // after a failed write all later errors are equal
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(true)
	if len(p.unfinished) > 0 {
		p.showing.Stop()
		p.unfinished = nil
	}
	return cmp.Or(err, p.err)
}

// recent is how many lines a user sees at once, on a small terminal.
const recent = 20

// Shown reports whether the last line of a task's stderr is text, colours apart, and is among
// the newest lines that were printed.
func (p *Printer) Shown(host, task, text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.streams[origin{host, Source{task, Stderr}}]
	return s != nil && s.at > 0 && p.lines-s.at < recent && text != "" && strings.HasSuffix(string(unformatted(s.last)), text)
}

// matches reports whether Grep and Exclude show a line.
func (p *Printer) matches(text []byte) bool {
	if !p.opts.filters() {
		return true
	}
	text = unformatted(text)
	return (p.opts.Grep == nil || p.opts.Grep.Match(text)) && (p.opts.Exclude == nil || !p.opts.Exclude.Match(text))
}

// filters reports whether some lines may be left out by their text.
func (o Options) filters() bool { return o.Grep != nil || o.Exclude != nil }

// printed counts a line.
func (p *Printer) printed() { p.lines++ }

// shows reports whether the lines of a task are printed.
func (p *Printer) shows(task string) bool {
	return len(p.opts.Only) == 0 || slices.ContainsFunc(p.opts.Only, func(pattern string) bool {
		ok, err := path.Match(pattern, task)
		return ok && err == nil
	})
}

// send writes to an output, unless an earlier write failed. It needs p.mu.
func (p *Printer) send(to Stream, b []byte) error {
	if p.err == nil {
		p.err = p.display.Write(to, b)
	}
	return p.err
}

// stream returns the state of an origin and creates it at the first call. It needs
// p.mu.
func (p *Printer) stream(o origin) (*stream, error) {
	if s := p.streams[o]; s != nil {
		return s, nil
	}
	if err := o.Source.check(); err != nil {
		return nil, err
	}
	s := p.newStream(o)
	p.streams[o] = s
	return s, nil
}

// order returns the place of a task's row. Tasks that are not known come last.
func (p *Printer) order(task string) int {
	if i := slices.Index(p.opts.Tasks, task); i >= 0 {
		return i
	}
	return len(p.opts.Tasks)
}
