package logs

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// command is a control character or an escape sequence that moves the cursor,
// erases text or sets a mode of the terminal.
type command struct {
	name byte  // final byte of a sequence that begins with ESC [, or a constant below (carriageReturn ... reverseIndex)
	args []int // numbers in the sequence; -1 for a number that the sequence leaves out
	mode bool  // true if the sequence begins with ESC [ ?
	size int   // length in bytes; 0 if the text is no command, -1 if the text may be an incomplete command
}

// Names of the commands that do not begin with ESC [.
const (
	carriageReturn = '\r'
	backspace      = '\b'
	saveCursor     = '7'
	restoreCursor  = '8'
	reverseIndex   = 'M' - '@' // final byte of ESC M; shifted, because the final byte M of ESC [ M means another command (delete lines)
)

// maxCommand is the length of the longest terminal command that commandOf
// accepts, in bytes.
const maxCommand = 32

// commandOf parses the terminal command at the beginning of text.
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
			n = -1 // The number is left out, or larger than any screen.
		}
		all = append(all, n)
	}
	return all
}

// arg returns number i of the command. If the command lacks this number, arg
// returns the parameter otherwise.
func (c command) arg(i, otherwise int) int {
	if i >= len(c.args) || c.args[i] < 0 {
		return otherwise
	}
	return c.args[i]
}

// up returns the number of lines by which the command moves the cursor up. It
// returns 0 for a command that does not.
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

// hasCommands reports whether text may contain terminal commands. Colours do
// not count as commands.
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

// lastUp returns the index in text of the last command that moves the cursor
// up, or -1.
func lastUp(text []byte) int {
	for end := len(text); ; {
		i := bytes.LastIndexByte(text[:end], ansi.ESC)
		if i < 0 || commandOf(text[i:]).up() > 0 {
			return i
		}
		end = i
	}
}
