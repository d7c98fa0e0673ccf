package logs

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// stream is the state of one origin. The Printer's lock guards it.
type stream struct {
	p                    *Printer
	from                 origin
	to                   Stream // output of the lines
	screen               Screen // that output
	split                splitter
	time                 time.Time // when the unfinished line began
	prefix               prefix
	out                  []byte         // lines not yet written
	memory               int            // bytes of all buffers, as measure has counted them
	rows                 []*Row         // the unfinished lines, while they are redrawn on a terminal
	hidden               bool           // nothing is printed
	message              *unit          // the unit that was begun last, if it is held back, see fold.go
	heldLines, heldBytes int            // what is held back
	flooded              time.Time      // when too much was held back: a flood is not held
	host                 *regexp.Regexp // finds the name of the host in a line
	last                 []byte         // the last line of stderr that was printed, or its end
	at                   int            // its number among all lines that were printed, from 1; 0: none was
}

// newStream returns the state of an origin, with the prefix of its lines.
func (p *Printer) newStream(o origin) *stream {
	s := &stream{p: p, from: o, to: o.Stream, hidden: !p.shows(o.Task), host: wordOf(o.host)}
	if p.opts.JSON {
		s.to = Stdout
	}
	s.screen = p.display.outputs[s.to]
	s.prefix = p.columns.prefix(o, s.screen)
	s.split = splitter{limit: p.limit, redraws: !p.opts.JSON, emit: s.line}
	return s
}

// add takes a chunk and writes the lines that it completes.
func (s *stream) add(c Chunk) error {
	if c.Restart || c.Offset != s.split.next {
		s.split.flush()
		s.split.skipTo(c.Offset)
	}
	if c.Dropped > 0 {
		return s.drop(c)
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

// plain adds the whole lines of data to out if each of them is shown as it is: a task may
// print millions. It does what feed and line do with them, and returns what is left.
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

// measure counts the stream's memory among that of all streams.
func (s *stream) measure() {
	now := s.split.size() + cap(s.out)
	s.p.memory += now - s.memory
	s.memory = now
}

// drop prints a line for bytes that the host has dropped. No filter leaves it out.
func (s *stream) drop(c Chunk) error {
	s.split.flush()
	s.time = c.Time
	l := line{text: []byte(c.missing()), offset: c.Offset, unended: true, dropped: c.Dropped}
	if s.p.opts.JSON {
		s.out = appendJSON(s.out, s.from.host, s.from.Source, s.time, l)
	} else {
		s.p.release(true) // what is held back came before
		s.print("", l)
	}
	s.split.skipTo(c.Offset + c.Dropped)
	return s.flush()
}

// line adds a line to out, unless it is filtered out.
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

// print adds a line to out, with plain before its text.
func (s *stream) print(plain string, l line) {
	s.p.printed()
	s.note(l.text)
	s.begin(s.time, s.prefix, l.continued)
	s.out = append(s.out, plain...)
	s.out = append(s.safe(s.out, l.text), '\n')
}

// stamp is the layout of the time before a line: always as wide.
const stamp = "2006-01-02T15:04:05.000Z "

// begin adds what stands before the text of a line.
func (s *stream) begin(at time.Time, before prefix, continued bool) {
	s.out = append(s.out, before.reset...)
	if s.p.opts.Timestamps {
		s.out = at.UTC().AppendFormat(s.out, stamp)
	}
	if continued {
		s.out = append(s.out, before.more...)
	} else {
		s.out = append(s.out, before.first...)
	}
}

// maxLast is how much of the line that is printed last is remembered, in bytes.
const maxLast = 16 << 10

// note remembers the line that is printed last.
func (s *stream) note(text []byte) {
	s.at = s.p.lines
	if s.from.Stream == Stderr {
		s.last = append(s.last[:0], text[max(0, len(text)-maxLast):]...)
	}
}

// safe appends text, on a terminal without what could steer it.
func (s *stream) safe(dst, text []byte) []byte {
	if s.screen.Terminal {
		return appendSafe(dst, text, s.screen.Colour)
	}
	return append(dst, text...)
}

// marked reports whether a line begins with Options.Mark, and returns the rest of it.
func (s *stream) marked(l line) (rest []byte, marked bool) {
	mark := s.p.opts.Mark
	if mark == "" || s.from.Stream != Stderr || s.p.opts.JSON || l.continued || !bytes.HasPrefix(l.text, []byte(mark)) {
		return nil, false
	}
	return l.text[len(mark):], true
}

// flush writes the added lines in one write, and shows the unfinished one if it is
// redrawn, or else after a while.
func (s *stream) flush() error {
	terminal, unfinished := s.p.display.Terminal(s.to), len(s.split.partial) > 0
	redrawn := terminal && (s.split.redrawn || s.split.block != nil || unfinished && len(s.rows) > 0)
	if !redrawn {
		s.keepRows(0)
	}
	if terminal && unfinished && !redrawn || s.split.pending() {
		s.p.lookSoon(s)
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

// maxShown is how much of an unfinished line is shown, in bytes: more than a terminal has
// room for.
const maxShown = 4 << 10

// showTime is how long a line may be unfinished before it is shown.
const showTime = 300 * time.Millisecond

// lookSoon has the unfinished line of a stream shown if it is not complete in a while, such
// as a row of dots that a program prints one by one, and lines printed that are not redrawn
// after all.
func (p *Printer) lookSoon(s *stream) {
	if slices.Contains(p.unfinished, s) {
		return
	}
	p.unfinished = append(p.unfinished, s)
	if len(p.unfinished) > 1 {
		return
	}
	p.showing = time.AfterFunc(showTime, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		looked := p.unfinished
		p.unfinished = nil
		for _, s := range looked {
			s.look()
		}
	})
}

func (s *stream) look() {
	if s.split.pending() {
		s.split.look()
		s.flush() // a failed write is kept by send
	}
	if len(s.split.partial) > 0 && s.p.display.Terminal(s.to) {
		s.redraw()
	}
}

// redraw shows the unfinished lines in rows, so that tasks that redraw at the same time
// have rows of their own. The lines are printed once they end.
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

// keepRows removes all rows but the first n.
func (s *stream) keepRows(n int) {
	for len(s.rows) > n {
		s.rows[len(s.rows)-1].Remove()
		s.rows = s.rows[:len(s.rows)-1]
	}
}
