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

// Printer writes the output of tasks to a [Display] as lines, each after a
// prefix with the names of task and host. The tasks' stdout goes to the
// Display's stdout and their stderr to its stderr. Its methods may be called
// from any goroutine. The caller must pass the chunks of one source in order.
//
// Printer writes each line in one piece when the line is complete. If the
// output is a pipe, the line's bytes are unchanged; on a terminal, control
// sequences are escaped. A line longer than 64 MiB is written in pieces, and
// the prefix of a later piece ends in +. Unfinished lines are also written in
// pieces when all of them together take more than 256 MiB.
//
// Some programs, such as progress bars, redraw lines with carriage returns and
// cursor movements. Printer prints only the last state of such a line. Until
// the line is complete, a terminal shows it as a progress row at its bottom. A
// terminal also shows a line there that stays unfinished for a while.
type Printer struct {
	opts    Options
	display *Display
	columns columns
	limit   int // length of the longest line that is written in one piece, in bytes
	room    int // memory for the unfinished lines and buffers of all streams together, in bytes

	mu        sync.Mutex // guards all fields below, and every stream
	streams   map[origin]*stream
	memory    int         // bytes that the unfinished lines and buffers of all streams take now
	lines     int         // number of lines printed so far
	holding   []*unit     // units that are held back (see fold.go), in the order of their first lines
	releasing *time.Timer // timer that prints held units; running while holding is not empty
	// unfinished lists the streams with an unfinished line, which will be
	// drawn as a progress row when the timer showing fires.
	unfinished []*stream
	showing    *time.Timer // timer that draws unfinished lines; running while unfinished is not empty
	err        error       // error of the first failed write, which all later calls return; nil if no write failed
}

// Options configures the lines that a Printer prints and their form.
type Options struct {
	// Hosts and Tasks are the names from which the Printer computes the width
	// of the prefix. The Printer prints lines of other hosts and tasks too,
	// but does not align them.
	Hosts, Tasks []string
	Grep         *regexp.Regexp // print only lines whose text without colours matches; nil prints all lines
	Exclude      *regexp.Regexp // omit lines whose text without colours matches; nil omits no line
	JSON         bool           // print both streams to stdout, as one JSON object per line
	Only         []string       // print only tasks whose name matches one of these patterns of path.Match; an empty slice prints all tasks
	NoTasks      bool           // show only the host in the prefix
	NoPrefix     bool           // print lines without a prefix
	Timestamps   bool           // begin each line with the UTC time at which the task wrote it; JSON lines always have a time
	Fold         bool           // print a message once if several tasks write it to stderr within a second
	// Loss examines a message that a task wrote to stderr. If the message
	// reports that the task lost its connection to a peer, Loss returns the
	// line that says so, otherwise "". With Fold, the Printer prints one such
	// line for all tasks. Loss may be nil.
	Loss func(message []string) string
	// Mark is the beginning of stderr lines that most users do not need. The
	// Printer omits these lines. With Verbose it prints them and replaces Mark
	// by Plain. If Mark is empty, no line is omitted or changed because of its
	// beginning.
	Mark, Plain string
	Verbose     bool
}

// origin identifies one stream of a task on one host.
type origin struct {
	host string
	Source
}

const (
	maxLine = 64 << 20  // longest line that is written in one piece, in bytes
	maxRoom = 256 << 20 // memory for all unfinished lines, in bytes, so that many tasks or a malicious host cannot exhaust memory
)

// NewPrinter returns a Printer that writes to the Display d.
func NewPrinter(d *Display, opts Options) *Printer {
	return &Printer{opts: opts, display: d, columns: newColumns(opts), limit: maxLine, room: maxRoom, streams: map[origin]*stream{}}
}

// Chunk prints the lines that c completes, and stores an unfinished last line.
// If c does not continue at the offset where the chunk before ended, or begins
// a new generation (restart) of the task, Chunk first prints the stored
// unfinished line. It returns an error if a write failed or c's source is
// invalid.
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

// flush prints the unfinished line of a source. Close calls it when no more
// chunks will come.
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

// Close prints the unfinished lines of all sources, sorted by task and host.
// Further calls do nothing.
func (p *Printer) Close() error {
	p.mu.Lock()
	from := slices.SortedFunc(maps.Keys(p.streams), func(a, b origin) int {
		return cmp.Or(strings.Compare(a.file(), b.file()), strings.Compare(a.host, b.host))
	})
	p.mu.Unlock()
	var err error
	for _, o := range from {
		err = cmp.Or(err, p.flush(o.host, o.Source)) // Keep only the first error: after a failed write, every flush returns it again.
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

// recent is the number of lines that a user sees at once on a small terminal.
const recent = 20

// Shown reports whether the user can probably still see text on the terminal.
// This is so if the last stderr line of the task ends with text, ignoring
// colours, and at most recent (20) lines were printed since.
func (p *Printer) Shown(host, task, text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.streams[origin{host, Source{task, Stderr}}]
	return s != nil && s.at > 0 && p.lines-s.at < recent && text != "" && strings.HasSuffix(string(unformatted(s.last)), text)
}

// matches reports whether the options Grep and Exclude let a line be printed.
func (p *Printer) matches(text []byte) bool {
	if !p.opts.filters() {
		return true
	}
	text = unformatted(text)
	return (p.opts.Grep == nil || p.opts.Grep.Match(text)) && (p.opts.Exclude == nil || !p.opts.Exclude.Match(text))
}

// filters reports whether the options omit some lines because of their text.
func (o Options) filters() bool { return o.Grep != nil || o.Exclude != nil }

// printed increments the number of printed lines.
func (p *Printer) printed() { p.lines++ }

// shows reports whether Options.Only lets the lines of a task be printed.
func (p *Printer) shows(task string) bool {
	return len(p.opts.Only) == 0 || slices.ContainsFunc(p.opts.Only, func(pattern string) bool {
		ok, err := path.Match(pattern, task)
		return ok && err == nil
	})
}

// send writes b to an output, unless an earlier write failed. It returns the
// first error of all writes. The caller must hold p.mu.
func (p *Printer) send(to Stream, b []byte) error {
	if p.err == nil {
		p.err = p.display.Write(to, b)
	}
	return p.err
}

// stream returns the state of an origin (a stream of a task on a host). It
// creates the state on the first call. The caller must hold p.mu.
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

// order returns the sort key of a task's progress row: its index in
// Options.Tasks. Tasks that are not listed there come last.
func (p *Printer) order(task string) int {
	if i := slices.Index(p.opts.Tasks, task); i >= 0 {
		return i
	}
	return len(p.opts.Tasks)
}
