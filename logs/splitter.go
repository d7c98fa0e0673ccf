package logs

import "bytes"

// line is one line of output, or a piece of a long line, as it will be
// printed.
type line struct {
	text      []byte // the line's bytes; valid only until the emit function returns
	offset    int64  // offset of the line's first byte in the source; meaningless if redrawn is set
	continued bool   // true if the text continues a line whose earlier piece was already emitted
	unended   bool   // true if no newline follows this text in the source
	redrawn   bool   // true if control characters have changed the line
	dropped   int64  // number of dropped bytes that this line reports; 0 for a line of the program
}

// splitter assembles the lines of one source from chunks of any size. It emits
// every byte except the line ends once and in order. If redraws is set, it
// executes control characters that move the cursor or erase text, and emits
// the lines that a terminal would finally show. The files cursor.go and
// block.go implement this.
type splitter struct {
	limit   int        // a line longer than this many bytes is emitted in pieces
	redraws bool       // execute control characters, so that text after a carriage return replaces the line
	emit    func(line) // receives each assembled line

	partial    []byte // unfinished line as a terminal shows it; empty if there is none
	col        int    // index in partial at which the next text is written; text after it is replaced
	redrawn    bool   // true if control characters have changed the unfinished line
	incomplete []byte // incomplete terminal command at the end of the input; empty if there is none
	astray     bool   // true if the cursor came from another row, and the program has not set its column since
	block      *block // rows that are redrawn together with the unfinished line; nil if there are none
	ahead      bool   // true if a command later in the present input moves the cursor up
	saved      bool   // true if the program has saved the cursor's position, in savedRow and savedCell
	savedRow   int    // number of rows from the saved position down to the cursor
	savedCell  int    // saved column, counted from 0
	next       int64  // offset in the source of the next byte of input
	continued  bool   // true if an earlier piece of the unfinished line was already emitted
}

// keepBuffer is the size up to which a buffer is kept for later lines, in
// bytes. Larger buffers are freed.
const keepBuffer = 1 << 20

// feed takes the next bytes of the source and emits the lines that they
// complete.
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

// finish ends the current line, whose last part is text. steered is true if
// text may contain terminal commands.
func (s *splitter) finish(text []byte, steered bool) {
	if !steered && len(text) <= s.limit && !s.unfinished() {
		s.next += int64(len(text)) + 1
		s.put(text, s.next-1-int64(len(text)), false)
		s.continued = false
		s.moveSaved(1)
		return
	}
	s.keep(text, steered)
	s.endCommand()
	s.next++
	if s.newline() {
		return
	}
	text = s.state()
	s.put(text, s.next-1-int64(len(text)), false)
	s.drop()
	s.continued = false
}

// keep appends text to the unfinished line without ending the line. steered is
// true if text may contain terminal commands.
func (s *splitter) keep(text []byte, steered bool) {
	if steered || len(s.incomplete) > 0 {
		text = s.execute(text)
	}
	s.write(text)
}

// endCommand appends an incomplete terminal command to the unfinished line as plain
// text, because the rest of the command will not come.
func (s *splitter) endCommand() {
	text := s.incomplete
	s.incomplete = nil
	s.next -= int64(len(text))
	s.write(text)
}

// write writes text without terminal commands to the unfinished line at the
// cursor. It emits a piece whenever the line reaches the limit.
func (s *splitter) write(text []byte) {
	if len(text) == 0 {
		return
	}
	s.beforeWrite()
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

// state returns the text that a terminal shows for the unfinished line, or nil
// if the program has blanked the line.
func (s *splitter) state() []byte {
	if s.redrawn && s.col == 0 && len(bytes.TrimSpace(s.partial)) == 0 {
		return nil
	}
	return s.partial
}

// skipTo sets the offset of the next byte of input, after bytes that the
// splitter does not see.
func (s *splitter) skipTo(offset int64) { s.next = offset }

// flush emits the unfinished line, because no more of its bytes will come.
func (s *splitter) flush() {
	s.endCommand()
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

// cut emits the bytes of the unfinished line received so far and frees the
// line's buffer.
func (s *splitter) cut() {
	if s.block != nil || s.redrawn || len(s.incomplete) > 0 {
		s.flush()
	} else if len(s.partial) > 0 {
		s.put(s.partial, s.next-int64(len(s.partial)), true)
		s.continued = true
	}
	s.partial, s.col = nil, 0
}

// unfinished reports whether the splitter holds an unfinished line, a block of
// rows or an incomplete command.
func (s *splitter) unfinished() bool {
	return len(s.partial) > 0 || s.redrawn || s.block != nil || len(s.incomplete) > 0
}

// size returns the memory that the splitter's buffers take, in bytes.
func (s *splitter) size() int {
	n := cap(s.partial)
	if s.block != nil {
		for _, r := range s.block.rows {
			n += cap(r.text)
		}
	}
	return n
}

// drop discards the unfinished line, and frees its buffer if the buffer is
// larger than keepBuffer.
func (s *splitter) drop() {
	s.partial, s.col, s.redrawn, s.astray = s.partial[:0], 0, false, false
	if cap(s.partial) > keepBuffer {
		s.partial = nil
	}
}

// RenderedLines returns the lines that a terminal finally shows after a program
// has printed text, without colours.
func RenderedLines(text string) (lines []string) {
	s := splitter{limit: maxLine, redraws: true, emit: func(l line) { lines = append(lines, string(unformatted(l.text))) }}
	s.feed([]byte(text))
	s.flush()
	return lines
}
