package main

import (
	"fmt"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// style is how a character looks. The zero value is plain text.
type style struct {
	colour      int // 1 + index of the 256 colours; 0: the terminal's own
	bold, faint bool
}

type cell struct {
	r rune
	style
}

// screen is a terminal that never scrolls: it has as many rows as are written.
type screen struct {
	width    int
	rows     [][]cell
	row, col int // the cursor
	style    style
}

func newScreen(width int) *screen { return &screen{width: width, rows: make([][]cell, 1)} }

// write acts on text as a terminal does.
func (s *screen) write(text string) error {
	parser := ansi.NewParser()
	for state := byte(0); text != ""; {
		sequence, width, n, next := ansi.DecodeSequence(text, state, parser)
		state, text = next, text[n:]
		if width > 0 {
			r, _ := utf8.DecodeRuneInString(sequence)
			s.put(r)
			continue
		}
		if err := s.control(sequence, parser); err != nil {
			return err
		}
	}
	return nil
}

func (s *screen) put(r rune) {
	if s.col == s.width {
		s.col = 0
		s.down(1)
	}
	line := s.rows[s.row]
	for len(line) <= s.col {
		line = append(line, cell{r: ' '})
	}
	line[s.col] = cell{r, s.style}
	s.rows[s.row] = line
	s.col++
}

func (s *screen) down(n int) {
	s.row += n
	for len(s.rows) <= s.row {
		s.rows = append(s.rows, nil)
	}
}

// control acts on one control character or sequence.
func (s *screen) control(sequence string, p *ansi.Parser) error {
	switch sequence {
	case "\n":
		s.down(1)
		return nil
	case "\r":
		s.col = 0
		return nil
	}
	if len(sequence) < 3 || sequence[:2] != "\x1b[" {
		return fmt.Errorf("control sequence %q is not known", sequence)
	}
	first, _ := p.Param(0, 0)
	switch ansi.Cmd(p.Command()).Final() {
	case 'm':
		return s.style.set(p.Params())
	case 'K':
		return s.erase(first)
	case 'J':
		s.rows = s.rows[:s.row+1]
		return s.erase(first)
	case 'A':
		s.row = max(s.row-max(first, 1), 0)
	case 'h', 'l': // show or hide the cursor, which the picture does not have
	default:
		return fmt.Errorf("control sequence %q is not known", sequence)
	}
	return nil
}

// erase removes the line from the cursor on (0), or all of it (2).
func (s *screen) erase(what int) error {
	line := s.rows[s.row]
	switch what {
	case 0:
		s.rows[s.row] = line[:min(s.col, len(line))]
	case 2:
		s.rows[s.row] = nil
	default:
		return fmt.Errorf("erasing with %d is not known", what)
	}
	return nil
}

// set changes the style as a sequence of parameters says.
func (s *style) set(params ansi.Params) error {
	if len(params) == 0 {
		*s = style{}
	}
	for i := 0; i < len(params); i++ {
		switch n := params[i].Param(0); {
		case n == 0:
			*s = style{}
		case n == 1:
			s.bold = true
		case n == 2:
			s.faint = true
		case n >= 30 && n <= 37:
			s.colour = 1 + n - 30
		case n >= 90 && n <= 97:
			s.colour = 1 + n - 90 + 8
		case n == 39:
			s.colour = 0
		case n == 38 && i+2 < len(params) && params[i+1].Param(0) == 5:
			s.colour = 1 + params[i+2].Param(0)
			i += 2
		default:
			return fmt.Errorf("style %d is not known", n)
		}
	}
	return nil
}
