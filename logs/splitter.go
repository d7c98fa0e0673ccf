package logs

import "bytes"

// line is a run of text that is shown on a line of its own.
type line struct {
	text      []byte // valid during the call that emits it
	offset    int64  // of its first byte in the source
	continued bool   // goes on with a line that was too long
	unended   bool   // without a newline in the source
}

// splitter assembles the lines of one source from chunks cut anywhere. Every
// byte but the line ends comes out once, in order.
type splitter struct {
	limit   int  // longer lines come out in pieces of this many bytes
	returns bool // a carriage return ends a line too: on a terminal

	partial   []byte // the unfinished line
	next      int64  // offset of the next byte
	continued bool
	returned  bool // nothing but carriage returns since one ended a line
}

// keepBuffer is how much memory stays with a splitter for the next long line.
const keepBuffer = 1 << 20

// feed takes the bytes at next and emits the lines they finish.
func (s *splitter) feed(data []byte, emit func(line)) {
	for len(data) > 0 {
		i := s.find(data)
		if i < 0 {
			s.keep(data, emit)
			return
		}
		s.finish(data[:i], data[i], emit)
		data = data[i+1:]
	}
}

// find returns the index of the next byte that ends a line, or -1.
func (s *splitter) find(data []byte) int {
	if s.returns {
		return bytes.IndexAny(data, "\r\n")
	}
	return bytes.IndexByte(data, '\n')
}

// finish ends the line whose last part is text. A carriage return with no text
// before it moves a cursor that stands at the left already: it ends nothing,
// and a newline behind one only completes it.
func (s *splitter) finish(text []byte, end byte, emit func(line)) {
	empty := len(text) == 0 && len(s.partial) == 0
	switch {
	case empty && end == '\r':
		s.next++
		return
	case empty && s.returned:
		s.next++
	case len(s.partial) > 0 || len(text) > s.limit:
		s.keep(text, emit)
		s.next++
		s.emit(s.partial, s.next-1-int64(len(s.partial)), false, emit)
		s.drop()
	default:
		s.next += int64(len(text)) + 1
		s.emit(text, s.next-1-int64(len(text)), false, emit)
	}
	s.continued, s.returned = false, end == '\r'
}

// keep adds text to the unfinished line, and emits pieces of it beyond the limit.
func (s *splitter) keep(text []byte, emit func(line)) {
	for {
		n := min(s.limit-len(s.partial), len(text))
		s.partial = append(s.partial, text[:n]...)
		s.next += int64(n)
		text = text[n:]
		if len(text) == 0 {
			return
		}
		s.emit(s.partial, s.next-int64(len(s.partial)), true, emit)
		s.partial, s.continued = s.partial[:0], true
	}
}

// flush emits an unfinished line: its end will not come.
func (s *splitter) flush(emit func(line)) {
	if len(s.partial) > 0 {
		s.emit(s.partial, s.next-int64(len(s.partial)), true, emit)
	}
	s.drop()
	s.continued, s.returned = false, false
}

func (s *splitter) emit(text []byte, offset int64, unended bool, emit func(line)) {
	emit(line{text: text, offset: offset, continued: s.continued, unended: unended})
}

// drop forgets the unfinished line, and its memory when that is much.
func (s *splitter) drop() {
	s.partial = s.partial[:0]
	if cap(s.partial) > keepBuffer {
		s.partial = nil
	}
}
