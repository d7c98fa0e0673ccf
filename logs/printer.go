package logs

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strconv"
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
// are unchanged. On a terminal each part that ends in a carriage return gets its
// own line, because a redraw would overwrite other tasks' lines, and control
// sequences are made harmless. A line longer than 64 MiB is written in pieces;
// the prefix of a piece that continues a line ends in + instead of |.
type Printer struct {
	opts    Options
	display *Display
	task    int // width of the prefix's column for tasks, in bytes
	host    int // width of the prefix's column for hosts, in bytes
	limit   int // length of the longest line that is written in one piece, in bytes

	mu      sync.Mutex // guards all below, and every stream
	streams map[origin]*stream
	err     error // error of the first failed write, which all later calls return; nil before it
}

// Options configures a Printer.
type Options struct {
	// Hosts and Tasks are the names that set the width of the prefix. Other
	// names are printed too, but not aligned.
	Hosts, Tasks []string
	Grep         *regexp.Regexp // print only lines whose text matches; nil prints all
	JSON         bool           // print one JSON object per line, for both streams on stdout
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

// stream is the state of one origin.
type stream struct {
	p      *Printer
	from   origin
	to     Stream // output of the lines
	screen Screen // that output
	split  splitter
	time   time.Time // when the unfinished line began
	first  []byte    // prefix of a line
	more   []byte    // prefix of a piece that continues a line
	after  []byte    // bytes after the text of a line, with its newline
	out    []byte    // lines not yet written
}

// maxLine is the longest line written in one piece, in bytes.
const maxLine = 64 << 20

// maxPadding bounds how wide one name makes a column, in bytes.
const maxPadding = 32

// NewPrinter returns a Printer that writes to a display.
func NewPrinter(d *Display, opts Options) *Printer {
	p := &Printer{opts: opts, display: d, limit: maxLine, streams: map[origin]*stream{}}
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
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.stream(origin{host, c.Source})
	if err != nil {
		return err
	}
	return s.add(c)
}

// Flush prints the unfinished line of a source after the source has ended.
func (p *Printer) Flush(host string, src Source) error {
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
		err = cmp.Or(err, p.Flush(o.host, o.Source)) // after a failed write all later errors are equal
	}
	return err
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

// newStream returns the state of an origin, with the prefix of its lines.
func (p *Printer) newStream(o origin) *stream {
	s := &stream{p: p, from: o, to: o.Stream}
	if p.opts.JSON {
		s.to = Stdout
	}
	s.screen = p.display.outputs[s.to]
	s.split = splitter{limit: p.limit, returns: s.screen.Terminal && !p.opts.JSON, emit: s.line}
	s.first, s.more = s.prefix("|"), s.prefix("+")
	if s.screen.Colour && o.server() {
		s.after = []byte(sgrReset)
	}
	s.after = append(s.after, '\n')
	return s
}

// server reports whether the task is a parameter server.
func (s Source) server() bool {
	return s.Task == "ps" || strings.HasPrefix(s.Task, "ps:")
}

// prefix returns the text before a line: task, host and a bar. For stderr the bar
// is a !, which shows without colour too.
func (s *stream) prefix(bar string) []byte {
	host := appendSafe(nil, []byte(s.from.host), false)
	name := fmt.Sprintf("%-*s %-*s ", s.p.task, s.from.Task, s.p.host, host)
	red, faint := "", ""
	if s.from.Stream == Stderr {
		bar, red = strings.Replace(bar, "|", "!", 1), sgrRed
	}
	if !s.screen.Colour {
		return []byte(name + bar + " ")
	}
	if s.from.server() {
		faint = sgrFaint
	}
	b := sgrColour(nil, colourOf(s.from.Task), faint != "")
	return append(b, name+red+bar+sgrReset+" "+faint...)
}

// add takes a chunk and writes the lines that it completes.
func (s *stream) add(c Chunk) error {
	if c.Restart || c.Offset != s.split.next {
		s.split.flush()
		s.split.skipTo(c.Offset)
	}
	// All lines of a chunk have its time, except a line that began earlier.
	// Therefore feed that line alone.
	if len(s.split.partial) > 0 {
		n := 1 + bytes.IndexByte(c.Data, '\n')
		s.split.feed(c.Data[:n])
		c.Data = c.Data[n:]
	}
	if len(s.split.partial) == 0 {
		s.time = c.Time
	}
	s.split.feed(c.Data)
	return s.flush()
}

// line adds a line to out, unless it is filtered out.
func (s *stream) line(l line) {
	plain := ""
	if rest, marked := s.marked(l); marked && !s.p.opts.Verbose {
		return
	} else if marked {
		plain, l.text = s.p.opts.Plain, rest
	}
	if s.p.opts.Grep != nil && !s.p.opts.Grep.Match(l.text) {
		return
	}
	if s.p.opts.JSON {
		s.out = appendJSON(s.out, s.from.host, s.from.Source, s.time, l)
		return
	}
	if l.continued {
		s.out = append(s.out, s.more...)
	} else {
		s.out = append(s.out, s.first...)
	}
	s.out = append(s.out, plain...)
	if s.screen.Terminal {
		s.out = appendSafe(s.out, l.text, s.screen.Colour)
	} else {
		s.out = append(s.out, l.text...)
	}
	s.out = append(s.out, s.after...)
}

// marked reports whether a line begins with Options.Mark, and returns the rest of it.
func (s *stream) marked(l line) (rest []byte, marked bool) {
	mark := s.p.opts.Mark
	if mark == "" || s.from.Stream != Stderr || s.p.opts.JSON || l.continued || !bytes.HasPrefix(l.text, []byte(mark)) {
		return nil, false
	}
	return l.text[len(mark):], true
}

// flush writes the added lines in one write.
func (s *stream) flush() error {
	err := s.p.send(s.to, s.out)
	s.out = s.out[:0]
	if cap(s.out) > keepBuffer {
		s.out = nil
	}
	return err
}

// UseColour decides from --color (always, never, auto or empty) and the
// environment whether an output is coloured. A mode given by hand comes before
// NO_COLOR; an unknown mode counts as auto.
func UseColour(mode string, terminal bool, getenv func(string) string) bool {
	switch mode {
	case "always":
		return true
	case "never":
		return false
	}
	return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// palette holds indexes of the 256-colour cube that stand out, at 3:1 or more,
// on white and on black. No red: that marks stderr.
var palette = [...]uint8{31, 64, 97, 130, 30, 133, 67, 100, 62, 65, 136, 99, 28, 103, 27, 102}

// colourOf returns the colour of a task: always the same for one name.
func colourOf(task string) uint8 {
	h := fnv.New32a()
	h.Write([]byte(task)) // a hash never fails
	return palette[h.Sum32()%uint32(len(palette))]
}

const (
	sgrReset = "\x1b[0m"
	sgrFaint = "\x1b[2m"
	sgrRed   = "\x1b[31m"
)

// sgrColour appends the sequence that begins a prefix. It first ends whatever
// a task left behind.
func sgrColour(dst []byte, colour uint8, faint bool) []byte {
	dst = append(dst, "\x1b[0;"...)
	if faint {
		dst = append(dst, "2;"...)
	}
	dst = append(dst, "38;5;"...)
	dst = strconv.AppendUint(dst, uint64(colour), 10)
	return append(dst, 'm')
}
