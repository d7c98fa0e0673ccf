package logs

import (
	"bytes"
	"strings"
)

// newStream returns the state of an origin, with the prefix of its lines.
func (p *Printer) newStream(o origin) *stream {
	s := &stream{p: p, from: o, output: &p.outputs[o.Stream]}
	s.split.limit = p.limit
	switch {
	case p.opts.JSON:
		s.output, s.emit = &p.outputs[Stdout], s.addJSON
	case s.output.Terminal:
		s.split.returns, s.emit = true, s.addSafe
	default:
		s.emit = s.addPlain
	}
	s.first, s.more = s.prefix("|"), s.prefix("+")
	if s.output.Colour && o.server() {
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
	if s.from.Stream == Stderr {
		bar = strings.Replace(bar, "|", "!", 1)
	}
	name := pad(nil, s.from.Task, s.p.task)
	name = append(name, ' ')
	name = pad(name, string(appendSafe(nil, []byte(s.from.host), false)), s.p.host)
	if !s.output.Colour {
		return append(append(append(name, ' '), bar...), ' ')
	}
	faint := s.from.server()
	b := sgrColour(nil, colourOf(s.from.Task), faint)
	b = append(append(b, name...), ' ')
	if s.from.Stream == Stderr {
		b = append(b, sgrRed...)
	}
	b = append(append(b, bar...), sgrReset...)
	b = append(b, ' ')
	if faint {
		b = append(b, sgrFaint...)
	}
	return b
}

// pad appends name and spaces up to a width.
func pad(dst []byte, name string, width int) []byte {
	dst = append(dst, name...)
	for n := len(name); n < width; n++ {
		dst = append(dst, ' ')
	}
	return dst
}

// add takes a chunk and writes the lines that it completes.
func (s *stream) add(c Chunk) error {
	if c.Restart || c.Offset != s.split.next {
		s.split.flush(s.emit)
		s.split.skipTo(c.Offset)
	}
	// All lines of a chunk have its time, except a line that began earlier.
	// Therefore feed that line alone.
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

// addPlain adds a line with its bytes unchanged.
func (s *stream) addPlain(l line) {
	if s.skips(l) {
		return
	}
	s.begin(l)
	s.out = append(s.out, l.text...)
	s.out = append(s.out, s.after...)
}

// addSafe adds a line for a terminal.
func (s *stream) addSafe(l line) {
	if s.skips(l) {
		return
	}
	s.begin(l)
	s.out = appendSafe(s.out, l.text, s.output.Colour)
	s.out = append(s.out, s.after...)
}

// addJSON adds a line as an object.
func (s *stream) addJSON(l line) {
	if s.skips(l) {
		return
	}
	s.out = appendJSON(s.out, s.from.host, s.from.Source, s.time, l)
}

// skips reports whether a line is filtered out.
func (s *stream) skips(l line) bool {
	return s.p.opts.Grep != nil && !s.p.opts.Grep.Match(l.text)
}

func (s *stream) begin(l line) {
	if l.continued {
		s.out = append(s.out, s.more...)
		return
	}
	s.out = append(s.out, s.first...)
}

// flush writes the added lines in one write.
func (s *stream) flush() error {
	err := s.p.send(s.output, s.out)
	s.out = s.out[:0]
	if cap(s.out) > keepBuffer {
		s.out = nil
	}
	return err
}
