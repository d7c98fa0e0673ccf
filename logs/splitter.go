package logs

import "bytes"

// line is text that is printed on a line of its own.
type line struct {
	text      []byte // valid during the call that emits it
	offset    int64  // of its first byte in the source; of no meaning for a line that was redrawn
	continued bool   // the line continues one that was too long
	unended   bool   // the line has no newline in the source
	dropped   int64  // bytes from offset on that were dropped, for which the line stands; 0: it is the program's
}

// splitter assembles the lines of one source from chunks of any size. It emits
// every byte except the line ends once, in order. If redraws is set, it drops what a
// carriage return has a terminal draw over.
type splitter struct {
	limit   int        // a longer line is emitted in pieces of this many bytes
	redraws bool       // text after a carriage return replaces the text before it
	emit    func(line) // takes the lines

	partial   []byte // the unfinished line, or what follows its last carriage return; empty means none
	drawn     []byte // what the last carriage return ended; empty means none
	redrawn   bool   // the unfinished line had a carriage return
	block     *block // lines that are redrawn together with the unfinished one; nil: none are
	nested    bool   // there has been a block
	next      int64  // offset of the next byte
	continued bool   // the unfinished line continues one that was too long
}

// keepBuffer is the size of the buffer that a splitter keeps for later lines, in
// bytes.
const keepBuffer = 1 << 20

// feed takes the bytes at offset next and emits the lines that they finish.
func (s *splitter) feed(data []byte) {
	returns := s.redraws && bytes.IndexByte(data, '\r') >= 0
	for len(data) > 0 {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			s.keep(data, returns)
			return
		}
		s.finish(data[:i], returns)
		data = data[i+1:]
	}
}

// finish ends the line whose last part is text. returns tells that text may have
// carriage returns.
func (s *splitter) finish(text []byte, returns bool) {
	if len(s.partial) > 0 || s.redrawn || len(text) > s.limit || returns {
		s.keep(text, returns)
		s.next++
		if s.moveDown() {
			return
		}
		text = s.state()
		s.put(text, s.next-1-int64(len(text)), false)
		s.drop()
	} else {
		s.next += int64(len(text)) + 1
		s.put(text, s.next-1-int64(len(text)), false)
	}
	s.continued = false
}

// keep adds text to the unfinished line and emits a piece whenever it reaches
// the limit.
func (s *splitter) keep(text []byte, returns bool) {
	if returns || s.redraws && s.redrawn {
		text = s.steer(text)
	}
	s.append(text)
}

// append adds text without controls to the unfinished line.
func (s *splitter) append(text []byte) {
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

// redraw takes the text before a carriage return. Only the last part of a line that is
// not empty stays: a carriage return alone changes nothing on a terminal.
func (s *splitter) redraw(text []byte) {
	s.redrawn = true
	s.next += int64(len(text))
	if len(s.partial)+len(text) > 0 {
		s.drawn = append(append(s.drawn[:0], s.partial...), text...)
	}
	s.drawn = s.drawn[:min(len(s.drawn), s.limit)]
	s.partial = s.partial[:0]
}

// state returns what a terminal shows of the unfinished line. Blanks that erase a line
// count as nothing.
func (s *splitter) state() []byte {
	switch {
	case len(s.partial) > 0 || !s.redrawn:
		return s.partial
	case len(bytes.TrimSpace(s.drawn)) == 0:
		return nil
	}
	return s.drawn
}

// skipTo makes offset the offset of the next byte.
func (s *splitter) skipTo(offset int64) { s.next = offset }

// flush emits the unfinished line, whose end will not come.
func (s *splitter) flush() {
	if s.block != nil {
		s.endBlock()
	}
	if text := s.state(); len(text) > 0 {
		s.put(text, s.next-int64(len(text)), true)
	}
	s.drop()
	s.continued = false
}

func (s *splitter) put(text []byte, offset int64, unended bool) {
	s.emit(line{text: text, offset: offset, continued: s.continued, unended: unended})
}

// cut emits the unfinished line as far as it has come, and gives its memory back.
func (s *splitter) cut() {
	if s.block != nil || s.redrawn {
		s.flush()
	} else if len(s.partial) > 0 {
		s.put(s.partial, s.next-int64(len(s.partial)), true)
		s.continued = true
	}
	s.partial, s.drawn = nil, nil
}

// unfinished reports whether a line has begun and not ended.
func (s *splitter) unfinished() bool {
	return len(s.partial) > 0 || s.redrawn || s.block != nil
}

// size is the memory of the unfinished line and of the buffers, in bytes.
func (s *splitter) size() int {
	n := cap(s.partial) + cap(s.drawn)
	if s.block != nil {
		for _, row := range s.block.rows {
			n += cap(row)
		}
	}
	return n
}

// drop forgets the unfinished line, and frees its buffers if they are large.
func (s *splitter) drop() {
	s.partial, s.drawn, s.redrawn = s.partial[:0], s.drawn[:0], false
	if cap(s.partial) > keepBuffer {
		s.partial = nil
	}
	if cap(s.drawn) > keepBuffer {
		s.drawn = nil
	}
}
