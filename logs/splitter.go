package logs

import "bytes"

// line is text that is printed on a line of its own.
type line struct {
	text      []byte // valid during the call that emits it
	offset    int64  // of its first byte in the source; of no meaning for a line that was redrawn
	continued bool   // the line continues one that was too long
	unended   bool   // the line has no newline in the source
	redrawn   bool   // control characters have changed the line
	dropped   int64  // bytes from offset on that were dropped, for which the line stands; 0: it is the program's
}

// splitter assembles the lines of one source from chunks of any size. It emits
// every byte except the line ends once, in order. If redraws is set, it obeys the control
// characters that move the cursor and erase, and emits the lines that a terminal shows in the
// end: see cursor.go and block.go.
type splitter struct {
	limit   int        // a longer line is emitted in pieces of this many bytes
	redraws bool       // text after a carriage return replaces the text before it
	emit    func(line) // takes the lines

	partial   []byte // the unfinished line as a terminal shows it; empty means none
	col       int    // where in it the next text goes: it replaces what is behind
	redrawn   bool   // control characters have changed the unfinished line
	half      []byte // the beginning of a command, whose rest is to come; empty: none
	astray    bool   // the cursor has come from another line, not to a column that the program chose
	block     *block // lines that are redrawn together with the unfinished one; nil: none are
	ahead     bool   // the cursor moves up in what was fed and is not split yet
	saved     bool   // the program has saved the place of the cursor:
	savedRow  int    // this many lines above
	savedCell int    // in this column, from 0
	next      int64  // offset of the next byte
	continued bool   // the unfinished line continues one that was too long
}

// keepBuffer is the size of the buffer that a splitter keeps for later lines, in
// bytes.
const keepBuffer = 1 << 20

// feed takes the bytes at offset next and emits the lines that they finish.
func (s *splitter) feed(data []byte) {
	steered := s.redraws && hasCommands(data)
	last := -1
	if steered {
		last = lastUp(data)
	}
	for from := 0; from < len(data); {
		s.ahead = from <= last
		i := bytes.IndexByte(data[from:], '\n')
		if i < 0 {
			s.keep(data[from:], steered)
			break
		}
		s.finish(data[from:from+i], steered)
		from += i + 1
	}
	s.ahead = false
}

// finish ends the line whose last part is text. steered tells that text may have control
// characters.
func (s *splitter) finish(text []byte, steered bool) {
	if !steered && len(text) <= s.limit && !s.unfinished() {
		s.next += int64(len(text)) + 1
		s.put(text, s.next-1-int64(len(text)), false)
		s.continued = false
		s.below(1)
		return
	}
	s.keep(text, steered)
	s.whole()
	s.next++
	if s.newline() {
		return
	}
	text = s.state()
	s.put(text, s.next-1-int64(len(text)), false)
	s.drop()
	s.continued = false
}

// keep adds text to the unfinished line.
func (s *splitter) keep(text []byte, steered bool) {
	if steered || len(s.half) > 0 {
		text = s.steer(text)
	}
	s.write(text)
}

// whole adds the beginning of a command to the unfinished line, as text: its rest will not come.
func (s *splitter) whole() {
	text := s.half
	s.half = nil
	s.next -= int64(len(text))
	s.write(text)
}

// write adds text without control characters to the unfinished line, at the cursor, and emits
// a piece whenever the line reaches the limit.
func (s *splitter) write(text []byte) {
	if len(text) == 0 {
		return
	}
	s.writes()
	s.partial = s.partial[:s.col]
	for {
		n := min(max(0, s.limit-len(s.partial)), len(text))
		s.partial = append(s.partial, text[:n]...)
		s.next += int64(n)
		text = text[n:]
		if len(text) == 0 {
			break
		}
		s.put(s.partial, s.next-int64(len(s.partial)), true)
		s.partial, s.continued = s.partial[:0], true
	}
	s.col = len(s.partial)
}

// state returns what a terminal shows of the unfinished line. Blanks that erase a line
// count as nothing.
func (s *splitter) state() []byte {
	if s.redrawn && s.col == 0 && len(bytes.TrimSpace(s.partial)) == 0 {
		return nil
	}
	return s.partial
}

// skipTo makes offset the offset of the next byte.
func (s *splitter) skipTo(offset int64) { s.next = offset }

// flush emits the unfinished line, whose end will not come.
func (s *splitter) flush() {
	s.whole()
	s.endBlock()
	if text := s.state(); len(text) > 0 {
		s.put(text, s.next-int64(len(text)), true)
	}
	s.drop()
	s.continued, s.saved = false, false
}

func (s *splitter) put(text []byte, offset int64, unended bool) {
	s.emit(line{text: text, offset: offset, continued: s.continued, unended: unended, redrawn: s.redrawn})
}

// cut emits the unfinished line as far as it has come, and gives its memory back.
func (s *splitter) cut() {
	if s.block != nil || s.redrawn || len(s.half) > 0 {
		s.flush()
	} else if len(s.partial) > 0 {
		s.put(s.partial, s.next-int64(len(s.partial)), true)
		s.continued = true
	}
	s.partial, s.col = nil, 0
}

// unfinished reports whether a line has begun and not ended.
func (s *splitter) unfinished() bool {
	return len(s.partial) > 0 || s.redrawn || s.block != nil || len(s.half) > 0
}

// size is the memory of the unfinished line and of the buffers, in bytes.
func (s *splitter) size() int {
	n := cap(s.partial)
	if s.block != nil {
		for _, r := range s.block.rows {
			n += cap(r.text)
		}
	}
	return n
}

// drop forgets the unfinished line, and frees its buffer if it is large.
func (s *splitter) drop() {
	s.partial, s.col, s.redrawn, s.astray = s.partial[:0], 0, false, false
	if cap(s.partial) > keepBuffer {
		s.partial = nil
	}
}

// LastStates returns the lines that a terminal shows of text in the end, without colours.
func LastStates(text string) (lines []string) {
	s := splitter{limit: maxLine, redraws: true, emit: func(l line) { lines = append(lines, string(unformatted(l.text))) }}
	s.feed([]byte(text))
	s.flush()
	return lines
}
