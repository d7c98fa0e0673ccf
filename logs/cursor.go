package logs

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// command is a control character or a control sequence that moves the cursor or erases.
type command struct {
	name byte  // final byte of a sequence that begins with ESC [, or one of those below
	args []int // its numbers; -1: left out
	mode bool  // it begins with ESC [ ?
	size int   // in bytes; 0: the text is no command, -1: it may be the beginning of one
}

// Names of commands that are no sequence with ESC [.
const (
	carriageReturn = '\r'
	backspace      = '\b'
	saveCursor     = '7'
	restoreCursor  = '8'
	reverseIndex   = 'M' - '@' // so that it is not ESC [ M, which deletes lines
)

// maxCommand is the length of the longest command, in bytes.
const maxCommand = 32

// commandOf reads the command with which text begins.
func commandOf(text []byte) command {
	switch {
	case text[0] == '\r', text[0] == '\b':
		return command{name: text[0], size: 1}
	case len(text) == 1:
		return command{size: -1}
	case text[1] == '7', text[1] == '8':
		return command{name: text[1], size: 2}
	case text[1] == 'M':
		return command{name: reverseIndex, size: 2}
	case text[1] != '[':
		return command{}
	}
	c := command{size: 2}
	if len(text) > 2 && text[2] == '?' {
		c.mode, c.size = true, 3
	}
	begin := c.size
	for ; c.size < len(text) && c.size < maxCommand; c.size++ {
		b := text[c.size]
		if b >= '0' && b <= '9' || b == ';' {
			continue
		}
		known := strings.IndexByte("ABCDEFGHJKSTXdfsu", b) >= 0
		if c.mode {
			known = b == 'h' || b == 'l'
		}
		if !known {
			return command{}
		}
		c.name, c.args = b, numbers(text[begin:c.size])
		c.size++
		return c
	}
	if c.size == len(text) {
		c.size = -1
		return c
	}
	return command{}
}

func numbers(text []byte) (all []int) {
	for part := range bytes.SplitSeq(text, []byte(";")) {
		n, err := strconv.Atoi(string(part))
		if err != nil {
			n = -1 // none, or too large for any screen
		}
		all = append(all, n)
	}
	return all
}

// arg returns a number of the command, or what counts if it is left out.
func (c command) arg(i, otherwise int) int {
	if i >= len(c.args) || c.args[i] < 0 {
		return otherwise
	}
	return c.args[i]
}

// up is how many lines the command moves the cursor up; 0: it does not.
func (c command) up() int {
	switch {
	case c.mode:
		return 0
	case c.name == 'A', c.name == 'F':
		return max(1, c.arg(0, 1))
	case c.name == reverseIndex:
		return 1
	}
	return 0
}

// commands are the bytes with which a command may begin.
const commands = "\r\b\x1b"

// hasCommands reports whether text may have commands: colours are none.
func hasCommands(text []byte) bool {
	if bytes.IndexByte(text, '\r') >= 0 || bytes.IndexByte(text, '\b') >= 0 {
		return true
	}
	for {
		i := bytes.IndexByte(text, ansi.ESC)
		if i < 0 {
			return false
		}
		if commandOf(text[i:]).size != 0 {
			return true
		}
		text = text[i+1:]
	}
}

// lastUp returns where in text the cursor moves up for the last time, -1 if it does not.
func lastUp(text []byte) int {
	for end := len(text); ; {
		i := bytes.LastIndexByte(text[:end], ansi.ESC)
		if i < 0 || commandOf(text[i:]).up() > 0 {
			return i
		}
		end = i
	}
}

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
