package logs

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"
)

// block is a group of lines that a program redraws by moving the cursor up, as nested
// progress bars of tqdm do: "\n\r 10%|# |\x1b[A" draws the bar below the current line.
// The current line is in the splitter, and the others are here.
type block struct {
	rows  [][]byte // last states, from top to bottom; that of the current line is old
	at    int      // index of the current line
	moved bool     // the cursor has moved to the current line, and nothing was written since
	up    bool     // the cursor has moved up since it last moved down
}

const (
	maxBlock = 64       // lines of a block
	maxState = 64 << 10 // bytes of a line of a block
)

// cursorUp moves the cursor up, and halfUp begins to.
var (
	cursorUp = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\x1b\[([0-9]{0,3})A`) })
	halfUp   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\x1b(\[[0-9]{0,3})?$`) })
)

// steer takes text of a line that is redrawn, up to the last character that moves the
// cursor. It returns the rest, which belongs to the current line.
func (s *splitter) steer(text []byte) []byte {
	if half := halfUp().Find(s.partial); half != nil {
		text = slices.Concat(half, text)
		s.partial, s.next = s.partial[:len(s.partial)-len(half)], s.next-int64(len(half))
	}
	for from := 0; ; {
		i := bytes.IndexAny(text[from:], "\r\x1b")
		if i < 0 {
			break
		}
		from += i
		n := s.control(text, from)
		if n == 0 {
			from++ // it belongs to the text
		} else {
			text, from = text[n:], 0
		}
	}
	if len(halfUp().ReplaceAll(text, nil)) > 0 {
		s.writes(false)
	}
	return text
}

// control takes text up to the control character at i. It returns how much it has taken,
// 0 if the character does not move the cursor.
func (s *splitter) control(text []byte, i int) int {
	if text[i] == '\r' {
		s.writes(i == 0)
		s.redraw(text[:i])
		s.next++
		return i + 1
	}
	m := cursorUp().FindSubmatch(text[i:])
	if m == nil || !s.redrawn {
		return 0
	}
	if i > 0 {
		s.writes(false)
	}
	lines, err := strconv.Atoi(string(m[1]))
	if err != nil {
		lines = 1 // no number
	}
	if !s.redrawn || lines >= maxBlock || s.block == nil && !(utf8.Valid(s.drawn) && utf8.Valid(s.partial) && utf8.Valid(text[:i])) {
		return 0
	}
	s.append(text[:i])
	s.next += int64(len(m[0]))
	s.moveUp(lines)
	return i + len(m[0])
}

// writes is called before something is written to the current line. Text in a line that
// the cursor has only moved to belongs to no bar: it ends the block.
func (s *splitter) writes(bar bool) {
	if s.block != nil && s.block.touch() && !bar {
		s.endBlock()
	}
}

// moveUp makes a line above the current one.
func (s *splitter) moveUp(lines int) {
	s.nested = true
	s.leave()
	s.block.moveUp(lines)
	s.enter()
}

// moveDown makes the line below the current one, if the block of a nested bar may go on
// there. False: the line ends.
func (s *splitter) moveDown() bool {
	if s.block == nil && !(s.nested && s.redrawn) {
		return false
	}
	s.leave()
	s.emitRows(s.block.moveDown())
	s.enter()
	return true
}

// leave stores the current line in the block.
func (s *splitter) leave() {
	if s.block == nil {
		s.block = &block{rows: [][]byte{nil}}
	}
	state := s.state()
	s.block.rows[s.block.at] = bytes.Clone(state[:min(len(state), maxState)])
}

// enter makes the block's line the current one.
func (s *splitter) enter() {
	s.partial, s.redrawn = s.partial[:0], true
	s.drawn = append(s.drawn[:0], s.block.rows[s.block.at]...)
}

// touch notes that something is written to the current line. It reports whether the
// cursor had only moved there.
func (b *block) touch() (fresh bool) {
	fresh, b.moved = b.moved, false
	return fresh
}

func (b *block) moveUp(lines int) {
	for b.at -= lines; b.at < 0; b.at++ {
		b.rows = slices.Insert(b.rows, 0, nil)
	}
	b.moved, b.up = true, true
}

// moveDown returns the lines that the cursor does not return to.
func (b *block) moveDown() (settled [][]byte) {
	if !b.moved && !b.up || len(b.rows) >= maxBlock {
		settled, b.rows, b.at = b.rows[:b.at], b.rows[b.at:], 0
	}
	if b.at++; b.at == len(b.rows) {
		b.rows = append(b.rows, nil)
	}
	b.moved, b.up = true, false
	return settled
}

// endBlock emits all lines of the block.
func (s *splitter) endBlock() {
	s.leave()
	rows := s.block.rows
	s.block = nil
	s.drop()
	s.emitRows(rows)
}

func (s *splitter) emitRows(rows [][]byte) {
	for _, text := range rows {
		if len(bytes.TrimSpace(text)) > 0 {
			s.put(text, s.next, false)
		}
	}
}

// states returns what a terminal shows of all unfinished lines.
func (s *splitter) states() [][]byte {
	if s.block == nil {
		return [][]byte{s.state()}
	}
	all := slices.Clone(s.block.rows)
	all[s.block.at] = s.state()
	return all
}
