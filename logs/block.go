package logs

import (
	"bytes"
	"slices"
)

// block is a group of lines that a program redraws by moving the cursor up.
// Nested progress bars of tqdm do so ("\n\r 10%|# |\x1b[A" draws the second
// bar below the first). Rich hides the cursor, draws all rows and moves up to
// the first row. The block stores all rows except the current one, whose text
// is in the splitter.
//
// A block begins when the cursor moves up. It also begins when the cursor may
// soon move up, because the program hid the cursor or a redrawn line ended.
// The block ends when the program writes text that belongs to none of its
// rows. It also ends when the cursor has not moved up for a while (see
// splitter.poll).
type block struct {
	rows []row // lines of the block from top to bottom; the entry of the current line is not up to date
	at   int   // index in rows of the line that holds the cursor

	firm     bool // true if the cursor is hidden, or the program addresses rows of the screen; following lines may then belong to the block, too
	shown    bool // true if the program hid the cursor and has shown it again
	climbed  bool // true if the cursor has moved up at least once since the block began
	climbing bool // true if the cursor has moved up, and the program has written nothing since
	complete bool // true if, between the last two upward moves, the program has rewritten all rows down to the last one
	painted  bool // true if, since its last upward move, the cursor has written to every row that it has left
	written  bool // true if the program has written to or erased the current row since the cursor entered the row
	grown    bool // true if a row was added at the bottom since the cursor last moved up
	idle     int  // number of calls of splitter.poll since the cursor last moved up
}

// row is one line of a block of redrawn lines.
type row struct {
	text    []byte
	redrawn bool
	used    bool // true if the program has written something to this row
	erased  bool // true if the program has overwritten the row with blanks
	ended   bool // true if the row ended with a newline, so that it is printed even if it is empty
}

const (
	maxBlock = 64       // largest number of rows of a block
	maxState = 64 << 10 // longest stored text of one row, in bytes

	// A block ends after this many calls of splitter.poll without a redraw.
	// Two calls take 0.3 to 0.6 s. That is enough for Rich, which redraws at
	// least 4 times per second. maxIdleFirm applies while the program hides
	// the cursor or addresses rows of the screen.
	maxIdle, maxIdleFirm = 2, 16
)

// beginBlock starts a block of redrawn lines with the current line as its only row.
// It does nothing inside a block.
func (s *splitter) beginBlock() {
	if s.block == nil {
		s.block = &block{rows: []row{{}}, painted: true}
	}
}

// storeRow copies the text of the current line into the block. It runs before
// the cursor moves to another row.
func (s *splitter) storeRow() {
	b := s.block
	r := &b.rows[b.at]
	r.text, r.redrawn = bytes.Clone(s.partial[:min(len(s.partial), maxState)]), s.redrawn
	r.erased = s.state() == nil
	r.used = r.used || len(s.partial) > 0
}

// loadRow loads the text of the block's row that now holds the cursor into the
// splitter. atStart puts the cursor at the row's first column.
func (s *splitter) loadRow(atStart bool) {
	r := s.block.rows[s.block.at]
	s.partial, s.redrawn = append(s.partial[:0], r.text...), r.redrawn
	s.col, s.astray = len(s.partial), !atStart
	if atStart {
		s.col = 0
	}
	s.block.written = false
}

// beforeWrite prepares the block for text that the program writes to the current
// line. If the text belongs to none of the block's rows, beforeWrite ends the
// block.
func (s *splitter) beforeWrite() {
	b := s.block
	if b == nil {
		return
	}
	s.endClimb()
	sure := b.firm || s.ahead && !b.climbed
	below := !b.rows[b.at].used && len(s.partial) == 0 && !s.redrawn
	if !sure && (s.astray || below || s.wiped()) {
		s.endBlock()
		s.drop()
		return
	}
	b.written, b.rows[b.at].used, s.astray = true, true, false
}

// wiped reports whether all rows of the block consist of blanks. tqdm blanks
// its bars in this way before it lets other code print.
func (s *splitter) wiped() bool {
	blank := func(r row) bool { return len(bytes.TrimSpace(r.text)) == 0 }
	return s.col == 0 && len(s.partial) > 0 && len(bytes.TrimSpace(s.partial)) == 0 &&
		!slices.ContainsFunc(slices.Delete(slices.Clone(s.block.rows), s.block.at, s.block.at+1), func(r row) bool { return !blank(r) })
}

// endClimb is called when the cursor stops moving up. It emits the rows above
// the cursor if the program has finished them. Such rows were not part of the
// last redraw.
func (s *splitter) endClimb() {
	b := s.block
	if !b.climbing {
		return
	}
	b.climbing, b.painted = false, true
	if b.complete {
		s.emitRows(b.takeRows(b.at))
	}
}

// takeRows removes the first n rows from the block and returns them.
func (b *block) takeRows(n int) (settled []row) {
	settled, b.rows, b.at = b.rows[:n:n], b.rows[n:], b.at-n
	return settled
}

// move moves the cursor down by lines rows, or up if lines is negative.
func (s *splitter) move(lines int) {
	if lines == 0 || s.block == nil && lines <= -maxBlock {
		return
	}
	lines = min(max(lines, -maxBlock), maxBlock)
	s.beginBlock()
	s.storeRow()
	b, atStart := s.block, s.col == 0
	s.moveSaved(lines)
	if lines < 0 {
		b.climb(-lines)
	} else {
		s.endClimb()
		b.painted = b.painted && b.written && lines == 1
		for range lines {
			s.down()
		}
	}
	s.loadRow(atStart)
}

func (b *block) climb(lines int) {
	if !b.climbing {
		b.complete = !b.climbed || b.painted && b.at == len(b.rows)-1
	}
	for b.at -= lines; b.at < 0; b.at++ {
		if len(b.rows) < maxBlock {
			b.rows = slices.Insert(b.rows, 0, row{redrawn: true})
		}
	}
	for i := range b.rows[b.at:] {
		b.rows[b.at+i].ended = false
	}
	b.climbed, b.climbing, b.grown, b.idle = true, true, false, 0
}

// down moves the cursor to the next row. If the cursor is in the block's last
// row, down adds an empty row. It emits the rows above if the program will not
// redraw them, and the first row if the block is full.
func (s *splitter) down() {
	b := s.block
	if b.at+1 == len(b.rows) {
		switch {
		case b.climbed && b.grown && !b.firm:
			s.emitRows(b.takeRows(b.at))
		case len(b.rows) >= maxBlock:
			s.emitRows(b.takeRows(1))
		}
		b.rows, b.grown = append(b.rows, row{}), true
	}
	b.at++
}

// goToRow moves the cursor to row n of the screen, counted from 0. It treats
// the block's first row as the first row of the screen.
func (s *splitter) goToRow(n int) {
	s.beginBlock()
	s.block.firm = true
	s.move(min(max(n, 0), maxBlock-1) - s.block.at)
}

// newline handles the end of the current line. If the program may redraw the
// line later, newline keeps it as a row, moves to the next row and returns
// true. Otherwise it returns false and the caller emits the line.
func (s *splitter) newline() bool {
	if s.block == nil && !s.ahead && !(s.redrawn && s.col > 0) {
		s.moveSaved(1)
		return false
	}
	if len(s.partial) > maxState { // the line is too long to be a row of a block
		s.endBlock()
		s.moveSaved(1)
		return false
	}
	s.beginBlock()
	b := s.block
	b.rows[b.at].ended = !b.climbed || b.firm && !s.redrawn
	s.move(1)
	s.col, s.astray = 0, false
	return true
}

// moveSaved adjusts the saved cursor position after the cursor has moved down by
// lines rows (up if negative).
func (s *splitter) moveSaved(lines int) {
	if s.saved {
		s.savedRow += lines
		s.saved = s.savedRow < maxBlock
	}
}

// poll is called every showAfter while a block waits for more output. It ends
// the block after maxIdle (or maxIdleFirm) calls without an upward move of the
// cursor.
func (s *splitter) poll() {
	b := s.block
	b.idle++
	s.endClimb()
	if !s.pending() {
		return
	}
	if b.firm && b.idle >= maxIdleFirm || !b.firm && b.idle >= maxIdle {
		s.endBlock()
	}
}

// pending reports whether the block, or some of its rows, should be printed if
// the cursor does not move up soon.
func (s *splitter) pending() bool {
	b := s.block
	return b != nil && (!b.climbed || b.shown || b.firm && b.grown || b.climbing && b.complete && b.at > 0)
}

// endBlock emits the rows of the block and removes the block. The current line
// stays unfinished if no row below it has text.
func (s *splitter) endBlock() {
	b := s.block
	if b == nil {
		return
	}
	s.storeRow()
	s.block = nil
	filled := func(r row) bool { return len(bytes.TrimSpace(r.text)) > 0 }
	if last := b.rows[b.at+1:]; slices.ContainsFunc(last, filled) || s.astray {
		s.emitRows(b.rows)
		s.drop()
		return
	}
	s.emitRows(b.rows[:b.at])
}

func (s *splitter) emitRows(rows []row) {
	for _, r := range rows {
		if r.erased {
			r.text = nil
		}
		if len(bytes.TrimSpace(r.text)) > 0 || r.ended {
			s.emit(line{text: r.text, offset: max(0, s.next-int64(len(r.text))), continued: s.continued, redrawn: r.redrawn})
			s.continued = false
		}
	}
}

// states returns the text that a terminal shows for each unfinished line: the
// rows of the block, or the one current line.
func (s *splitter) states() (all [][]byte) {
	if s.block == nil {
		return [][]byte{s.state()}
	}
	for _, r := range s.block.rows {
		all = append(all, r.text)
	}
	all[s.block.at] = s.state()
	return all
}
