package logs

import "bytes"

// line is text that is printed on a line of its own.
type line struct {
	text      []byte // valid during the call that emits it
	offset    int64  // of its first byte in the source
	continued bool   // the line continues one that was too long
	unended   bool   // the line has no newline in the source
}

// splitter assembles the lines of one source from chunks of any size. It emits
// every byte except the line ends once, in order.
type splitter struct {
	limit   int        // a longer line is emitted in pieces of this many bytes
	returns bool       // a carriage return ends a line too; true on a terminal
	emit    func(line) // takes the lines

	partial   []byte // the unfinished line; empty means none
	next      int64  // offset of the next byte
	continued bool   // the unfinished line continues one that was too long
	returned  bool   // since the last line, which a carriage return ended, only carriage returns have come
}

// keepBuffer is the size of the buffer that a splitter keeps for later lines, in
// bytes.
const keepBuffer = 1 << 20

// feed takes the bytes at offset next and emits the lines that they finish.
func (s *splitter) feed(data []byte) {
	ends := "\n"
	if s.returns {
		ends = "\r\n"
	}
	for len(data) > 0 {
		i := bytes.IndexAny(data, ends)
		if i < 0 {
			s.keep(data)
			return
		}
		s.finish(data[:i], data[i])
		data = data[i+1:]
	}
}

// finish ends the line whose last part is text. A carriage return without text
// before it ends nothing, because the cursor is at the left already. A newline
// after a carriage return only completes that line end.
func (s *splitter) finish(text []byte, end byte) {
	empty := len(text) == 0 && len(s.partial) == 0
	switch {
	case empty && end == '\r':
		s.next++
		return
	case empty && s.returned:
		s.next++
	case len(s.partial) > 0 || len(text) > s.limit:
		s.keep(text)
		s.next++
		s.put(s.partial, s.next-1-int64(len(s.partial)), false)
		s.drop()
	default:
		s.next += int64(len(text)) + 1
		s.put(text, s.next-1-int64(len(text)), false)
	}
	s.continued, s.returned = false, end == '\r'
}

// keep adds text to the unfinished line and emits a piece whenever it reaches
// the limit.
func (s *splitter) keep(text []byte) {
	for {
		n := min(s.limit-len(s.partial), len(text))
		s.partial = append(s.partial, text[:n]...)
		s.next += int64(n)
		text = text[n:]
		if len(text) == 0 {
			return
		}
		s.put(s.partial, s.next-int64(len(s.partial)), true)
		s.partial, s.continued = s.partial[:0], true
	}
}

// skipTo makes offset the offset of the next byte.
func (s *splitter) skipTo(offset int64) { s.next = offset }

// flush emits the unfinished line, whose end will not come.
func (s *splitter) flush() {
	if len(s.partial) > 0 {
		s.put(s.partial, s.next-int64(len(s.partial)), true)
	}
	s.drop()
	s.continued, s.returned = false, false
}

func (s *splitter) put(text []byte, offset int64, unended bool) {
	s.emit(line{text: text, offset: offset, continued: s.continued, unended: unended})
}

// drop forgets the unfinished line, and frees its buffer if that is large.
func (s *splitter) drop() {
	s.partial = s.partial[:0]
	if cap(s.partial) > keepBuffer {
		s.partial = nil
	}
}
