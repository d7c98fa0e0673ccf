package logs

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Printer writes the output of tasks as lines, each after a prefix with task and
// host. The tasks' stdout goes to one writer and their stderr to another. Its
// methods may be called from any goroutine, and two writes never run at once.
// Chunks of one source must come in order.
//
// Printer writes a line in one piece after it is complete. In a pipe its bytes
// are unchanged. On a terminal each part that ends in a carriage return gets its
// own line, because a redraw would overwrite other tasks' lines, and control
// sequences are made harmless. A line longer than 64 MiB is written in pieces;
// the prefix of a piece that continues a line ends in + instead of |.
type Printer struct {
	opts    Options
	outputs [2]output
	task    int // width of the prefix's column for tasks, in bytes
	host    int // width of its column for hosts
	limit   int // longest line written in one piece, in bytes

	mu      sync.Mutex // guards streams; taken before a stream's own
	streams map[origin]*stream

	write sync.Mutex // held for each write; taken after a stream's own
	err   error      // of the first write that failed; all later calls return it
}

// Options configures a Printer.
type Options struct {
	Stdout, Stderr Screen
	// Hosts and Tasks are the names that set the width of the prefix. Other
	// names are printed too, but not aligned.
	Hosts, Tasks []string
	Grep         *regexp.Regexp // print only lines that match, without their prefix; nil prints all
	JSON         bool           // print one object per line of either stream on stdout
}

// Screen describes a writer.
type Screen struct {
	Terminal bool // it is a terminal: make lines harmless
	Colour   bool // it shows colours, see [UseColour]
}

// output is a writer with its description.
type output struct {
	Screen
	w io.Writer
}

// origin is a source on a host.
type origin struct {
	host string
	Source
}

// stream is the state of one origin.
type stream struct {
	mu     sync.Mutex
	p      *Printer
	from   origin
	output *output
	split  splitter
	emit   func(line) // adds a line to out
	time   time.Time  // when the unfinished line began
	first  []byte     // prefix of a line
	more   []byte     // prefix of a piece that continues a line
	after  []byte     // bytes after the text of a line
	out    []byte     // lines not yet written
}

// maxLine is the longest line written in one piece, in bytes.
const maxLine = 64 << 20

// maxPadding bounds how wide one name makes a column, in bytes.
const maxPadding = 32

// NewPrinter returns a Printer. It does not close the writers. Until Close only
// the Printer should write to them; Notice serves for other text.
func NewPrinter(stdout, stderr io.Writer, opts Options) *Printer {
	p := &Printer{opts: opts, limit: maxLine, streams: map[origin]*stream{}}
	p.outputs[Stdout] = output{opts.Stdout, stdout}
	p.outputs[Stderr] = output{opts.Stderr, stderr}
	for _, name := range opts.Tasks {
		p.task = max(p.task, min(len(name), maxPadding))
	}
	for _, name := range opts.Hosts {
		p.host = max(p.host, min(len(name), maxPadding))
	}
	return p
}

// Chunk prints the lines that c completes and keeps the rest. If c does not
// follow the bytes before it, or begins a new generation, Chunk prints the
// unfinished line as it is. It returns an error if a write failed or c's source
// is invalid.
func (p *Printer) Chunk(host string, c Chunk) error {
	s, err := p.stream(origin{host, c.Source})
	if err != nil {
		return err
	}
	return s.add(c)
}

// Flush prints the unfinished line of a source after the source has ended.
func (p *Printer) Flush(host string, src Source) error {
	s, err := p.stream(origin{host, src})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.split.flush(s.emit)
	return s.flush()
}

// Close prints the unfinished lines of all sources, in order of task and host.
// It may be called again.
func (p *Printer) Close() error {
	p.mu.Lock()
	from := make([]origin, 0, len(p.streams))
	for o := range p.streams {
		from = append(from, o)
	}
	p.mu.Unlock()
	slices.SortFunc(from, func(a, b origin) int {
		if c := strings.Compare(a.file(), b.file()); c != 0 {
			return c
		}
		return strings.Compare(a.host, b.host)
	})
	var err error
	for _, o := range from {
		if failed := p.Flush(o.host, o.Source); err == nil {
			err = failed // after a failed write all later errors are equal
		}
	}
	return err
}

// Notice writes text of plx itself to stderr, between the lines of tasks. It
// adds a newline if text does not end with one.
func (p *Printer) Notice(text string) error {
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return p.send(&p.outputs[Stderr], []byte(text))
}

// send writes to an output, unless an earlier write failed.
func (p *Printer) send(o *output, b []byte) error {
	p.write.Lock()
	defer p.write.Unlock()
	if p.err == nil && len(b) > 0 {
		_, p.err = o.w.Write(b)
	}
	return p.err
}

// stream returns the state of an origin and creates it at the first call.
func (p *Printer) stream(o origin) (*stream, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
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
