package main

import (
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/muesli/termenv"
)

// Sizes in pixels: of one character, of the space around the text, of the bar above it.
const (
	charWidth  = 7.8
	lineHeight = 18
	margin     = 16
	bar        = 28
)

// The colours of the window and of plain text.
const (
	background = "#1e1e2e"
	frame      = "#313244"
	foreground = "#cdd6f4"
)

// svg draws the screen. Every piece of text names its column and its width, so that
// the columns stay in line whatever the font of the reader.
func (s *screen) svg() string {
	lines := s.rows
	for len(lines) > 0 && len(trimmed(lines[len(lines)-1])) == 0 {
		lines = lines[:len(lines)-1]
	}
	width, height := 2*margin+charWidth*float64(s.width), bar+2*margin+lineHeight*len(lines)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" role="img" aria-label="A terminal in which plx launches two jobs">`+"\n",
		width, height, width, height)
	b.WriteString("<!-- drawn by internal/picture from terminal.ansi -->\n")
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="%s"/>`+"\n", background)
	fmt.Fprintf(&b, `<path d="M0 %d V8 a8 8 0 0 1 8 -8 H%.0f a8 8 0 0 1 8 8 V%d Z" fill="%s"/>`+"\n", bar, width-8, bar, frame)
	for i, colour := range []string{"#f38ba8", "#f9e2af", "#a6e3a1"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="%d" r="5" fill="%s"/>`+"\n", margin+16*i+4, bar/2, colour)
	}
	fmt.Fprintf(&b, `<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13" fill="%s" xml:space="preserve">`+"\n", foreground)
	for i, line := range lines {
		writeLine(&b, trimmed(line), bar+margin+lineHeight*i+13)
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

// trimmed leaves out the blanks at the end of a line.
func trimmed(line []cell) []cell {
	for len(line) > 0 && line[len(line)-1].r == ' ' {
		line = line[:len(line)-1]
	}
	return line
}

// writeLine writes one element for each run of characters that look the same.
func writeLine(b *strings.Builder, line []cell, y int) {
	for from := 0; from < len(line); {
		to := from
		var text strings.Builder
		for ; to < len(line) && line[to].style == line[from].style; to++ {
			text.WriteRune(line[to].r)
		}
		if strings.TrimSpace(text.String()) != "" {
			fmt.Fprintf(b, `<text x="%.1f" y="%d" textLength="%.1f"%s>%s</text>`+"\n",
				margin+charWidth*float64(from), y, charWidth*float64(to-from), line[from].attributes(), escaped(text.String()))
		}
		from = to
	}
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder takes everything
	return b.String()
}

// attributes returns what an element says of its style.
func (s style) attributes() string {
	text := ""
	if s.colour > 0 {
		text += fmt.Sprintf(` fill="%s"`, termenv.ConvertToRGB(termenv.ANSI256Color(s.colour-1)).Hex())
	}
	if s.bold {
		text += ` font-weight="bold"`
	}
	if s.faint {
		text += ` opacity="0.65"`
	}
	return text
}
