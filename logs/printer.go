package logs

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Printer writes what tasks print as lines behind a prefix with task and host:
// the tasks' stdout to one writer and their stderr to another. Its methods may
// be called from any goroutine, and two writes never run at once; chunks of
// one source must come in order.
//
// A line is written once it is complete, in one piece, whatever other tasks
// print meanwhile. In a pipe its bytes are unchanged. On a terminal each part
// that ends in a carriage return gets a line of its own, since a redraw would
// overwrite other tasks' lines, and control sequences are made harmless. A
// line beyond 64 MiB is written in pieces of that size; the prefix of a piece
// that continues one ends in + and not in |.
type Printer struct {
	opts    Options
	outputs [2]output
	task    int // width of the prefix's columns
	host    int
	limit   int

	mu      sync.Mutex // guards streams; taken before a stream's own
	streams map[origin]*stream

	write sync.Mutex // held for each write; taken after a stream's own
	err   error      // of a write; all later calls return it
}

// Options says how a Printer writes.
type Options struct {
	Stdout, Stderr Screen
	// Hosts and Tasks that will print: they set the width of the prefix.
	// Another name is printed too, but out of line.
	Hosts, Tasks []string
	Grep         *regexp.Regexp // only lines it matches; the prefix is not looked at
	JSON         bool           // an object per line, of both streams, on stdout
}

// Screen is what stands behind a writer.
type Screen struct {
	Terminal bool // make lines harmless
	Colour   bool // see [UseColour]
}

// output is a writer and what it is.
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
	emit   func(line) // add, made once
	time   time.Time  // when the unfinished line began
	first  []byte     // the prefix of a line
	more   []byte     // of a piece that continues one
	after  []byte     // behind the text
	out    []byte     // lines not yet written
}

// maxLine is the longest line written in one piece, in bytes.
const maxLine = 64 << 20

// maxPadding bounds how wide one name makes a column, in bytes.
const maxPadding = 32

// NewPrinter returns a Printer. The writers stay the caller's; nobody else
// should write to them before Close, except through Notice.
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

// Chunk prints the lines that c completes and keeps the rest. An unfinished
// line is printed as it is when c does not follow the bytes before it, or
// begins a new generation. The error is that of a writer, or of c's source.
func (p *Printer) Chunk(host string, c Chunk) error {
	s, err := p.stream(origin{host, c.Source})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Restart || c.Offset != s.split.next {
		s.split.flush(s.emit)
		s.split.next = c.Offset
	}
	// The line that was begun keeps its time: it is given to the first line
	// only, so feed that one alone.
	if len(s.split.partial) > 0 {
		n := 1 + bytes.IndexByte(c.Data, '\n')
		s.split.feed(c.Data[:n], s.emit)
		c.Data = c.Data[n:]
	}
	if len(s.split.partial) == 0 {
		s.time = c.Time
	}
	s.split.feed(c.Data, s.emit)
	return s.flush()
}

// Flush prints the unfinished line of a source that has ended.
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

// Close prints what is unfinished of all sources, in order of task and host.
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
			err = failed // those after a failed write are the same
		}
	}
	return err
}

// Notice writes text, which is plx's own, to stderr between the lines of
// tasks. It ends it with a newline where it has none.
func (p *Printer) Notice(text string) error {
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return p.send(&p.outputs[Stderr], []byte(text))
}

// send writes to an output, unless a write has failed before.
func (p *Printer) send(o *output, b []byte) error {
	p.write.Lock()
	defer p.write.Unlock()
	if p.err == nil && len(b) > 0 {
		_, p.err = o.w.Write(b)
	}
	return p.err
}

// stream returns the state of an origin, new at its first chunk.
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
