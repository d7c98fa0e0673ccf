package logs

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// maxText is the greatest length, in bytes, of a line in which terminal
// commands (such as cursor moves) are executed. In a longer line, or in one
// that is not UTF-8, control bytes are probably binary data. Carriage returns
// are executed in lines of any length.
const maxText = 4 << 10

// execute executes all terminal commands in text and writes the text between
// them to the unfinished line. It returns the text after the last command.
func (s *splitter) execute(text []byte) []byte {
	if len(s.incomplete) > 0 {
		s.next -= int64(len(s.incomplete))
		text, s.incomplete = slices.Concat(s.incomplete, text), nil
	}
	garbled := false // true if the text before the terminal command in this line is too long or not UTF-8
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
			s.incomplete = bytes.Clone(text[from:])
			s.next += int64(len(s.incomplete))
			return nil
		case c.size == 0 || c.name != carriageReturn && garbled:
			from++ // Do not execute the command: its first byte stays part of the text.
		default:
			s.write(text[:from])
			s.next += int64(c.size)
			s.apply(c)
			text, from, garbled = text[from+c.size:], 0, false
		}
	}
}

// apply applies the effect of terminal command c to the unfinished lines.
func (s *splitter) apply(c command) {
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
		s.beginBlock()
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

// cells returns the number of terminal cells that text occupies.
func cells(text []byte) int {
	if plainRun(text) == len(text) {
		return len(text)
	}
	return ansi.StringWidth(string(text))
}

// maxCell is the greatest column to which a command can move the cursor.
const maxCell = 1000

// goTo moves the cursor to a column of the current line, counted from 0. It
// fills a line that is too short with spaces.
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

// eraseLine erases a part of the current line. If what is 0, it erases the
// part right of the cursor. If what is 1, it erases the part left of the
// cursor. For other values it erases the whole line.
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

// eraseScreen erases the rows below the cursor if what is 0, the rows above
// the cursor if what is 1, and otherwise all rows. In the current line it
// erases the part that eraseLine erases for this value of what.
func (s *splitter) eraseScreen(what int) {
	b := s.block
	if what != 0 && (b == nil || !b.firm && !b.climbed) {
		return // A program that clears the screen does not delete ordinary lines of its log.
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

// setMode handles the terminal modes that a program switches on and off. Only
// mode 25, the visible cursor, matters: programs hide the cursor while they
// redraw.
func (s *splitter) setMode(mode int, on bool) {
	const cursor = 25
	switch {
	case mode != cursor:
	case !on:
		s.beginBlock()
		s.block.firm, s.block.shown = true, false
	case s.block != nil:
		s.block.firm, s.block.shown = false, true
	}
}
