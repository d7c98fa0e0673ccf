package main

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/muesli/termenv"
)

// Sizes in pixels: of one character, of the space around the text.
const (
	charWidth  = 7.8
	lineHeight = 18
	margin     = 16
)

// The colours of the window and of plain text. The picture has its own background, so it looks
// the same on dark and light pages.
const (
	background = "#1e1e2e"
	foreground = "#cdd6f4"
)

// named are the first 16 of the 256 colours, which each terminal chooses for itself: here those
// that can be read on the background.
var named = [16]string{
	"#585b70", "#f38ba8", "#a6e3a1", "#f9e2af", "#89b4fa", "#f5c2e7", "#94e2d5", "#bac2de",
	"#7f849c", "#f38ba8", "#a6e3a1", "#f9e2af", "#89b4fa", "#f5c2e7", "#94e2d5", "#ffffff",
}

// style is how text looks. The zero value is plain text.
type style struct {
	colour      string // "": the foreground
	bold, faint bool
}

var sequence = regexp.MustCompile(`\x1b\[([0-9;]*)m`)

// paint draws a screen: lines of text in which sequences set the style. Other control
// sequences are refused.
func (c scene) paint(screen string) (string, error) {
	lines := strings.Split(strings.TrimRight(screen, "\n"), "\n")
	width, height := 2*margin+charWidth*float64(c.columns), 2*margin+lineHeight*len(lines)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" role="img" aria-label="%s">`+"\n", width, height, width, height, c.shows)
	fmt.Fprintf(&b, "<!-- drawn by internal/tools/picture from %s.ansi -->\n", c.name)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="%s"/>`+"\n", background)
	fmt.Fprintf(&b, `<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13" fill="%s" xml:space="preserve">`+"\n", foreground)
	var s style
	for i, line := range lines {
		if err := s.paintLine(&b, line, margin+lineHeight*i); err != nil {
			return "", fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String(), nil
}

// paintLine draws each piece of a line that looks the same. A piece has its column and its
// width, so that columns stay in line with any font. Bars fill their cells whatever the font has.
func (s *style) paintLine(b *strings.Builder, line string, y int) error {
	column := 0
	for line != "" {
		next := sequence.FindStringSubmatchIndex(line)
		text, rest, set := line, "", ""
		if next != nil {
			text, set, rest = line[:next[0]], line[next[2]:next[3]], line[next[1]:]
		}
		if strings.Contains(text, "\x1b") {
			return fmt.Errorf("control sequence in %q is not known", text)
		}
		n := utf8.RuneCountInString(text)
		text, bars := bars(text, margin+charWidth*float64(column), y)
		if bars != "" {
			fmt.Fprintf(b, `<path d="%s"%s/>`+"\n", bars, s.attributes())
		}
		if strings.TrimSpace(text) != "" {
			fmt.Fprintf(b, `<text x="%.1f" y="%d" textLength="%.1f"%s>`, margin+charWidth*float64(column), y+13, charWidth*float64(n), s.attributes())
			_ = xml.EscapeText(b, []byte(text)) // a strings.Builder takes everything
			b.WriteString("</text>\n")
		}
		column, line = column+n, rest
		if next != nil {
			if err := s.set(strings.Split(set, ";")); err != nil {
				return err
			}
		}
	}
	return nil
}

// bars returns the text with spaces for ▁ to █, and the path of these from x, y on.
func bars(text string, x float64, y int) (rest, path string) {
	runes := []rune(text)
	for i, r := range runes {
		if r >= '▁' && r <= '█' {
			height := lineHeight * float64(r-'▁'+1) / 8
			path += fmt.Sprintf("M%.1f %dv-%gh%gv%gz", x+charWidth*float64(i), y+lineHeight, height, charWidth, height)
			runes[i] = ' '
		}
	}
	return string(runes), path
}

// set changes the style as a sequence's parameters say.
func (s *style) set(parameters []string) error {
	for i := 0; i < len(parameters); i++ {
		n, _ := strconv.Atoi(parameters[i]) // an empty one is 0
		switch {
		case n == 0:
			*s = style{}
		case n == 1:
			s.bold = true
		case n == 2:
			s.faint = true
		case n >= 30 && n <= 37:
			s.colour = named[n-30]
		case n >= 90 && n <= 97:
			s.colour = named[n-90+8]
		case n == 49: // the background, which is never another
		case n == 39:
			s.colour = ""
		case n == 38 && i+2 < len(parameters) && parameters[i+1] == "5":
			i += 2
			n, _ = strconv.Atoi(parameters[i])
			if s.colour = termenv.ConvertToRGB(termenv.ANSI256Color(n)).Hex(); n < len(named) {
				s.colour = named[n]
			}
		default:
			return fmt.Errorf("style %q is not known", strings.Join(parameters, ";"))
		}
	}
	return nil
}

// attributes returns what an element says of its style.
func (s *style) attributes() string {
	text := ""
	if s.colour != "" {
		text += ` fill="` + s.colour + `"`
	}
	if s.bold {
		text += ` font-weight="bold"`
	}
	if s.faint {
		text += ` opacity="0.65"`
	}
	return text
}
