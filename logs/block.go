package logs

import (
	"bytes"
	"slices"
)

// block is a group of lines that a program redraws by moving the cursor up, as nested
// progress bars of tqdm do ("\n\r 10%|# |\x1b[A" draws the bar below the current line), and
// those of Rich, which hides the cursor, draws all rows and moves up to the first. The
// current line is in the splitter, and the others are here.
//
// A block begins where the cursor moves up, or may do so soon: it was hidden, or a line that
// was redrawn ends. It ends with text that belongs to no row, or if the cursor does not move
// up: see look.
type block struct {
	rows []row // from top to bottom; that of the current line is old
	at   int   // index of the current line

	firm     bool // the cursor is hidden, or the program moves it to rows of the screen: lines below may be rows too
	shown    bool // the cursor was hidden, and is not any more
	climbed  bool // the cursor has moved up
	climbing bool // it has moved up, and nothing was written since
	complete bool // when it began to move up, all rows below the one that it had moved to were written
	painted  bool // since it moved up, it has left no row without writing to it
	written  bool // the current row was written to or erased since the cursor came
	grown    bool // a row was added since the cursor moved up
	idle     int  // number of looks since the cursor moved up
}

// row is a line of a block.
type row struct {
	text    []byte
	redrawn bool
	used    bool // something was written to it
	erased  bool // it was overwritten with blanks
	ended   bool // it is a line even if it is empty
}

const (
	maxBlock = 64       // lines of a block
	maxState = 64 << 10 // bytes of a line of a block

	// A block may be pending for so many looks: two are 0.3 to 0.6 s, and Rich redraws 4 times
	// in a second at least.
	looks, firmLooks = 2, 16
)

// begin begins a block with the current line, unless there is one.
func (s *splitter) begin() {
	if s.block == nil {
		s.block = &block{rows: []row{{}}, painted: true}
	}
}

// leave stores the current line in the block.
func (s *splitter) leave() {
	b := s.block
	r := &b.rows[b.at]
	r.text, r.redrawn = bytes.Clone(s.partial[:min(len(s.partial), maxState)]), s.redrawn
	r.erased = s.state() == nil
	r.used = r.used || len(s.partial) > 0
}

// enter makes the block's line the current one.
func (s *splitter) enter(atStart bool) {
	r := s.block.rows[s.block.at]
	s.partial, s.redrawn = append(s.partial[:0], r.text...), r.redrawn
	s.col, s.astray = len(s.partial), !atStart
	if atStart {
		s.col = 0
	}
	s.block.written = false
}

// writes is called before text is written to the current line. It ends the block if the text
// belongs to none of its rows.
func (s *splitter) writes() {
	b := s.block
	if b == nil {
		return
	}
	s.land()
	sure := b.firm || s.ahead && !b.climbed
	below := !b.rows[b.at].used && len(s.partial) == 0 && !s.redrawn
	if !sure && (s.astray || below || s.wiped()) {
		s.endBlock()
		s.drop()
		return
	}
	b.written, b.rows[b.at].used, s.astray = true, true, false
}

// wiped reports whether all rows were overwritten with blanks, as tqdm does before it lets
// other text be written.
func (s *splitter) wiped() bool {
	blank := func(r row) bool { return len(bytes.TrimSpace(r.text)) == 0 }
	return s.col == 0 && len(s.partial) > 0 && len(bytes.TrimSpace(s.partial)) == 0 &&
		!slices.ContainsFunc(slices.Delete(slices.Clone(s.block.rows), s.block.at, s.block.at+1), func(r row) bool { return !blank(r) })
}

// land is called when the cursor has ceased to move up. Rows above it are over if they were
// not drawn together with the others.
func (s *splitter) land() {
	b := s.block
	if !b.climbing {
		return
	}
	b.climbing, b.painted = false, true
	if b.complete {
		s.emitRows(b.settle(b.at))
	}
}

// settle removes the first n rows.
func (b *block) settle(n int) (settled []row) {
	settled, b.rows, b.at = b.rows[:n:n], b.rows[n:], b.at-n
	return settled
}

// move moves the cursor down by a number of lines, or up if the number is negative.
func (s *splitter) move(lines int) {
	if lines == 0 || s.block == nil && lines <= -maxBlock {
		return
	}
	lines = min(max(lines, -maxBlock), maxBlock)
	s.begin()
	s.leave()
	b, atStart := s.block, s.col == 0
	s.below(lines)
	if lines < 0 {
		b.climb(-lines)
	} else {
		s.land()
		b.painted = b.painted && b.written && lines == 1
		for range lines {
			s.down()
		}
	}
	s.enter(atStart)
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

// down makes the line below the current one. Rows that the cursor does not return to are
// emitted.
func (s *splitter) down() {
	b := s.block
	if b.at+1 == len(b.rows) {
		switch {
		case b.climbed && b.grown && !b.firm:
			s.emitRows(b.settle(b.at))
		case len(b.rows) >= maxBlock:
			s.emitRows(b.settle(1))
		}
		b.rows, b.grown = append(b.rows, row{}), true
	}
	b.at++
}

// goToRow moves the cursor to a row of the screen, from 0. plx takes the block's first row for
// the first of the screen.
func (s *splitter) goToRow(n int) {
	s.begin()
	s.block.firm = true
	s.move(min(max(n, 0), maxBlock-1) - s.block.at)
}

// newline makes the line below the current one, if the current one may be redrawn later.
// False: the line ends.
func (s *splitter) newline() bool {
	if s.block == nil && !s.ahead && !(s.redrawn && s.col > 0) {
		s.below(1)
		return false
	}
	if len(s.partial) > maxState { // it is no row
		s.endBlock()
		s.below(1)
		return false
	}
	s.begin()
	b := s.block
	b.rows[b.at].ended = !b.climbed || b.firm && !s.redrawn
	s.move(1)
	s.col, s.astray = 0, false
	return true
}

// below notes that the cursor has moved down.
func (s *splitter) below(lines int) {
	if s.saved {
		s.savedRow += lines
		s.saved = s.savedRow < maxBlock
	}
}

// look is called every showTime while a block is pending, and ends it in time.
func (s *splitter) look() {
	b := s.block
	b.idle++
	s.land()
	if !s.pending() {
		return
	}
	if b.firm && b.idle >= firmLooks || !b.firm && b.idle >= looks {
		s.endBlock()
	}
}

// pending reports whether the block, or a part of it, ends unless the cursor moves up soon.
func (s *splitter) pending() bool {
	b := s.block
	return b != nil && (!b.climbed || b.shown || b.firm && b.grown || b.climbing && b.complete && b.at > 0)
}

// endBlock emits the lines of the block. The current line goes on if it is the last one.
func (s *splitter) endBlock() {
	b := s.block
	if b == nil {
		return
	}
	s.leave()
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

// states returns what a terminal shows of all unfinished lines.
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
