package logs

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// stream is the Printer's state for one output stream (stdout or stderr) of a
// task on one host. Printer.mu guards it.
type stream struct {
	p                    *Printer
	from                 origin
	to                   Stream // output of the Display that receives the lines: Stdout or Stderr
	screen               Screen // description of the output that receives the lines
	split                splitter
	time                 time.Time // time at which the unfinished line began
	prefix               prefix
	out                  []byte         // lines that are formatted but not written yet
	memory               int            // bytes of this stream's buffers, as last counted by measure
	rows                 []*Row         // progress rows that show the unfinished lines on a terminal
	hidden               bool           // true if Options.Only does not select the task, so that nothing is printed
	message              *unit          // the newest unit (line or message) that is held back, see fold.go; nil if none is
	heldLines, heldBytes int            // number of lines, and of bytes, of this stream that are held back and not printed yet
	flooded              time.Time      // last time at which the stream had too many held lines or bytes; for a while after it, lines are printed at once
	host                 *regexp.Regexp // matches the host's name in a line
	last                 []byte         // the last printed line of stderr, cut to its last maxLast bytes
	at                   int            // value of Printer.lines when this stream's last line had been printed; 0 before the first line
}

// newStream returns the initial state for the lines of origin o.
func (p *Printer) newStream(o origin) *stream {
	s := &stream{p: p, from: o, to: o.Stream, hidden: !p.shows(o.Task), host: hostPattern(o.host)}
	if p.opts.JSON {
		s.to = Stdout
	}
	s.screen = p.display.outputs[s.to]
	s.prefix = p.columns.prefix(o, s.screen)
	s.split = splitter{limit: p.limit, redraws: !p.opts.JSON, emit: s.line}
	return s
}

// add takes the next chunk of the stream and writes the lines that the chunk
// completes.
func (s *stream) add(c Chunk) error {
	if c.Restart || c.Offset != s.split.next {
		s.split.flush()
		s.split.skipTo(c.Offset)
	}
	if c.Dropped > 0 {
		return s.drop(c)
	}
	// Each line is printed with the time of the chunk (piece of output) in
	// which the line began. Therefore add first feeds the end of an unfinished
	// line, and then sets s.time to the time of this chunk.
	if len(s.split.partial) > 0 {
		n := 1 + bytes.IndexByte(c.Data, '\n')
		s.split.feed(c.Data[:n])
		c.Data = c.Data[n:]
	}
	if len(s.split.partial) == 0 {
		s.time = c.Time
	}
	s.split.feed(s.plain(c.Data))
	err := s.flush()
	if s.measure(); s.p.memory > s.p.room {
		s.split.cut()
		err = s.flush()
		s.out = nil
		s.measure()
	}
	return err
}

// plain is a fast path for tasks that print millions of lines. If no line of
// data needs special treatment, plain formats all complete lines into s.out
// and returns the bytes after them. Otherwise it returns data unchanged. The
// output is the same as that of feed and line.
func (s *stream) plain(data []byte) []byte {
	n := 1 + bytes.LastIndexByte(data, '\n')
	opts := s.p.opts
	if n == 0 || n > s.split.limit || s.from.Stream != Stdout || opts.JSON || opts.filters() ||
		s.split.unfinished() || s.split.continued || s.split.saved || hasCommands(data) {
		return data
	}
	from := len(s.out)
	s.begin(s.time, s.prefix, false)
	before := bytes.Clone(s.out[from:])
	s.out = s.out[:from]
	for rest := data[:n]; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		s.out = append(s.out, before...)
		if s.screen.Terminal {
			s.out = append(s.safe(s.out, rest[:end]), '\n')
		} else {
			s.out = append(s.out, rest[:end+1]...)
		}
		rest = rest[end+1:]
		s.p.printed()
	}
	s.at = s.p.lines
	s.split.skipTo(s.split.next + int64(n))
	return data[n:]
}

// measure updates Printer.memory with the memory that this stream's buffers
// take now.
func (s *stream) measure() {
	now := s.split.size() + cap(s.out)
	s.p.memory += now - s.memory
	s.memory = now
}

// drop prints a line that reports the bytes that the host has dropped. Grep
// and Exclude do not apply to this line.
func (s *stream) drop(c Chunk) error {
	s.split.flush()
	s.time = c.Time
	l := line{text: []byte(c.dropNotice()), offset: c.Offset, unended: true, dropped: c.Dropped}
	if s.p.opts.JSON {
		s.out = appendJSON(s.out, s.from.host, s.from.Source, s.time, l)
	} else {
		s.p.release(true) // print the lines that are held back first, because they came earlier
		s.print("", l)
	}
	s.split.skipTo(c.Offset + c.Dropped)
	return s.flush()
}

// line formats a line and adds it to s.out. It does not add a line that an
// option omits, or that is held back to be merged with equal lines of other
// tasks (Options.Fold).
func (s *stream) line(l line) {
	if l.redrawn && !s.screen.Terminal && !s.screen.Colour && utf8.Valid(l.text) {
		l.text = unformatted(l.text)
	}
	plain := ""
	if rest, marked := s.marked(l); marked && !s.p.opts.Verbose {
		return
	} else if marked {
		plain, l.text = s.p.opts.Plain, rest
	}
	if !s.p.matches(l.text) {
		return
	}
	if s.p.opts.JSON {
		s.out = appendJSON(s.out, s.from.host, s.from.Source, s.time, l)
		return
	}
	if s.hold(plain, l.text) {
		return
	}
	s.print(plain, l)
}

// print formats a line and adds it to s.out. plain is the text that replaces
// Options.Mark before the line.
func (s *stream) print(plain string, l line) {
	s.p.printed()
	s.note(l.text)
	s.begin(s.time, s.prefix, l.continued)
	s.out = append(s.out, plain...)
	s.out = append(s.safe(s.out, l.text), '\n')
}

// timeLayout is the layout of the time before a line. Its width is constant, so
// that lines stay aligned.
const timeLayout = "2006-01-02T15:04:05.000Z "

// begin adds the beginning of a line to s.out: the time, if the user wants
// times, and the prefix.
func (s *stream) begin(at time.Time, before prefix, continued bool) {
	s.out = append(s.out, before.reset...)
	if s.p.opts.Timestamps {
		s.out = at.UTC().AppendFormat(s.out, timeLayout)
	}
	if continued {
		s.out = append(s.out, before.more...)
	} else {
		s.out = append(s.out, before.first...)
	}
}

// maxLast is the number of bytes kept of the last printed line of stderr.
const maxLast = 16 << 10

// note records text as the last printed line of this stream.
func (s *stream) note(text []byte) {
	s.at = s.p.lines
	if s.from.Stream == Stderr {
		s.last = append(s.last[:0], text[max(0, len(text)-maxLast):]...)
	}
}

// safe appends text to dst. For a terminal it first makes control characters
// harmless.
func (s *stream) safe(dst, text []byte) []byte {
	if s.screen.Terminal {
		return appendSafe(dst, text, s.screen.Colour)
	}
	return append(dst, text...)
}

// marked reports whether a line begins with Options.Mark, and returns the text
// after the mark.
func (s *stream) marked(l line) (rest []byte, marked bool) {
	mark := s.p.opts.Mark
	if mark == "" || s.from.Stream != Stderr || s.p.opts.JSON || l.continued || !bytes.HasPrefix(l.text, []byte(mark)) {
		return nil, false
	}
	return l.text[len(mark):], true
}

// flush writes the lines in s.out in one write. On a terminal it also shows
// the unfinished line as a progress row: at once if the program redraws that
// line, otherwise after showAfter.
func (s *stream) flush() error {
	terminal, unfinished := s.p.display.Terminal(s.to), len(s.split.partial) > 0
	redrawn := terminal && (s.split.redrawn || s.split.block != nil || unfinished && len(s.rows) > 0)
	if !redrawn {
		s.keepRows(0)
	}
	if terminal && unfinished && !redrawn || s.split.pending() {
		s.p.pollSoon(s)
	}
	err := s.p.send(s.to, s.out)
	s.out = s.out[:0]
	if cap(s.out) > keepBuffer {
		s.out = nil
	}
	if redrawn {
		s.redraw()
	}
	return err
}

// maxShown is the largest number of bytes of an unfinished line that a
// progress row shows. It is larger than the width of a terminal.
const maxShown = 4 << 10

// showAfter is how long a line may be unfinished before a progress row shows
// it.
const showAfter = 300 * time.Millisecond

// pollSoon calls s.poll after showAfter. This shows a line that is still
// unfinished, such as a row of dots that a program prints one by one. It also
// prints a block of progress bars that the program has stopped redrawing.
func (p *Printer) pollSoon(s *stream) {
	if slices.Contains(p.unfinished, s) {
		return
	}
	p.unfinished = append(p.unfinished, s)
	if len(p.unfinished) > 1 {
		return
	}
	p.showing = time.AfterFunc(showAfter, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		looked := p.unfinished
		p.unfinished = nil
		for _, s := range looked {
			s.poll()
		}
	})
}

func (s *stream) poll() {
	if s.split.pending() {
		s.split.poll()
		s.flush() // send stores an error in Printer.err
	}
	if len(s.split.partial) > 0 && s.p.display.Terminal(s.to) {
		s.redraw()
	}
}

// redraw shows the stream's unfinished lines as progress rows, so that several
// tasks can redraw lines at the same time. Finished lines are printed above
// the rows.
func (s *stream) redraw() {
	states := s.split.states()
	s.keepRows(len(states))
	for i, state := range states {
		if i == len(s.rows) {
			s.rows = append(s.rows, s.p.display.Row(s.p.order(s.from.Task)))
		}
		state = state[:min(len(state), maxShown)]
		text := ""
		if _, marked := s.marked(line{text: state, continued: s.split.continued}); !marked && len(bytes.TrimSpace(state)) > 0 && s.p.matches(state) {
			shown := appendSafe(bytes.Clone(s.prefix.first), state, s.screen.Colour)
			text = strings.ReplaceAll(string(shown), "\t", " ")
		}
		s.rows[i].Set(text)
	}
}

// keepRows removes all progress rows of this stream except the first n.
func (s *stream) keepRows(n int) {
	for len(s.rows) > n {
		s.rows[len(s.rows)-1].Remove()
		s.rows = s.rows[:len(s.rows)-1]
	}
}
