package logs

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// maxText is the length in bytes of a line that is redrawn. In longer ones commands other than
// carriage returns are accidents, as in what is no UTF-8.
const maxText = 4 << 10

// steer takes text of the unfinished line up to its last command. It returns the rest.
func (s *splitter) steer(text []byte) []byte {
	if len(s.half) > 0 {
		s.next -= int64(len(s.half))
		text, s.half = slices.Concat(s.half, text), nil
	}
	garbled := false // what precedes is no text
	for from := 0; ; {
		i := bytes.IndexAny(text[from:], commands)
		if i < 0 {
			return text
		}
		from += i
		c := commandOf(text[from:])
		if !garbled && c.size > 0 && c.name != carriageReturn {
			garbled = s.col+from > maxText || !utf8.Valid(s.partial[:s.col]) || !utf8.Valid(text[:from])
		}
		switch {
		case c.size < 0:
			s.write(text[:from])
			s.half = bytes.Clone(text[from:])
			s.next += int64(len(s.half))
			return nil
		case c.size == 0 || c.name != carriageReturn && garbled:
			from++ // it belongs to the text
		default:
			s.write(text[:from])
			s.next += int64(c.size)
			s.obey(c)
			text, from, garbled = text[from+c.size:], 0, false
		}
	}
}

// obey does what a terminal does at a command.
func (s *splitter) obey(c command) {
	if c.mode {
		s.setMode(c.arg(0, 0), c.name == 'h')
		return
	}
	switch c.name {
	case carriageReturn:
		s.goTo(0)
	case backspace, 'D':
		s.goTo(cells(s.partial[:s.col]) - max(1, c.arg(0, 1)))
	case 'C':
		s.goTo(cells(s.partial[:s.col]) + max(1, c.arg(0, 1)))
	case 'G':
		s.goTo(c.arg(0, 1) - 1)
	case 'K':
		s.eraseLine(c.arg(0, 0))
	case 'J':
		s.eraseScreen(c.arg(0, 0))
	case 'H', 'f':
		s.goToRow(c.arg(0, 1) - 1)
		s.goTo(c.arg(1, 1) - 1)
	case 'd':
		s.goToRow(c.arg(0, 1) - 1)
	case 'B', 'E':
		s.move(max(1, c.arg(0, 1)))
	case saveCursor, 's':
		s.begin()
		s.block.firm, s.saved, s.savedRow, s.savedCell = true, true, 0, cells(s.partial[:s.col])
	case restoreCursor, 'u':
		if s.saved {
			s.move(-s.savedRow)
			s.goTo(s.savedCell)
		}
	default:
		s.move(-c.up())
	}
	if c.name == 'E' || c.name == 'F' {
		s.goTo(0)
	}
}

// cells returns the width of text on a terminal.
func cells(text []byte) int {
	if plainRun(text) == len(text) {
		return len(text)
	}
	return ansi.StringWidth(string(text))
}

// maxCell is the greatest column to which the cursor moves.
const maxCell = 1000

// goTo moves the cursor to a column of the line, from 0.
func (s *splitter) goTo(cell int) {
	s.redrawn, s.astray = true, false
	if cell <= 0 {
		s.col = 0
		return
	}
	cell = min(cell, maxCell)
	at, col := 0, 0
	if n := plainRun(s.partial); n == len(s.partial) {
		at, col = min(n, cell), min(n, cell)
	}
	for at < cell && col < len(s.partial) {
		_, n := utf8.DecodeRune(s.partial[col:])
		if sequence := control().Find(s.partial[col:]); len(sequence) > 0 {
			n = len(sequence)
		}
		at += cells(s.partial[col : col+n])
		col += n
	}
	s.partial = append(s.partial, bytes.Repeat([]byte(" "), max(0, cell-at))...)
	s.col = col + max(0, cell-at)
}

// eraseLine erases to the right of the cursor (0), to its left (1), or the whole line.
func (s *splitter) eraseLine(what int) {
	switch {
	case what == 0:
		s.redrawn = s.redrawn || s.col < len(s.partial)
		s.partial = s.partial[:s.col]
	case what == 1 && s.col < len(s.partial):
		s.redrawn = true
		copy(s.partial, bytes.Repeat([]byte(" "), s.col))
	default:
		s.redrawn, s.astray = true, false
		s.partial, s.col = s.partial[:0], 0
	}
	if s.block != nil {
		s.block.written = true
	}
}

// eraseScreen erases below the cursor (0), above it (1), or all lines.
func (s *splitter) eraseScreen(what int) {
	b := s.block
	if what != 0 && (b == nil || !b.firm && !b.climbed) {
		return // lines that are not redrawn are not lost
	}
	s.eraseLine(min(what, 2))
	if b == nil {
		return
	}
	for i := range b.rows {
		if what >= 2 || what == 0 && i > b.at || what == 1 && i < b.at {
			b.rows[i].text, b.rows[i].redrawn = nil, true
		}
	}
}

// setMode obeys a mode of the terminal: the cursor is hidden while a program redraws.
func (s *splitter) setMode(mode int, on bool) {
	const cursor = 25
	switch {
	case mode != cursor:
	case !on:
		s.begin()
		s.block.firm, s.block.shown = true, false
	case s.block != nil:
		s.block.firm, s.block.shown = false, true
	}
}
