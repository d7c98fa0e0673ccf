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

// Sizes in pixels of one character and of the margin around the text.
const (
	charWidth  = 7.8
	lineHeight = 18
	margin     = 16
)

// named are the colors of the palette with the numbers 0 to 15. Terminals
// choose these 16 colors freely. The values below are readable on the
// picture's own background, so the picture looks the same on dark and light
// pages.
var named = strings.Fields(`#585b70 #f38ba8 #a6e3a1 #f9e2af #89b4fa #f5c2e7 #94e2d5 #bac2de
	#7f849c #f38ba8 #a6e3a1 #f9e2af #89b4fa #f5c2e7 #94e2d5 #ffffff`)

// piece matches text of one style, or an escape sequence that changes the
// style.
var piece = regexp.MustCompile(`\x1b\[([0-9;]*)m|[^\x1b]+|\x1b`)

// paint draws a screen as SVG. The screen is lines of text with escape
// sequences for styles; other escape sequences are an error. Each piece of
// text has a fixed position and width, so that columns are aligned in any
// font. Bar characters are drawn as paths that fill their cells.
func (c scene) paint(screen string) (string, error) {
	lines := strings.Split(strings.TrimRight(screen, "\n"), "\n")
	width, height := 2*margin+charWidth*float64(c.columns), 2*margin+lineHeight*len(lines)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" role="img" aria-label="%s">
<!-- drawn by internal/tools/picture from %s.ansi -->
<rect width="100%%" height="100%%" rx="8" fill="#1e1e2e"/>
<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13" fill="#cdd6f4" xml:space="preserve">
`, width, height, width, height, c.shows, c.name)
	s := style{}
	for i, line := range lines {
		x, y := float64(margin), margin+lineHeight*i
		for _, found := range piece.FindAllStringSubmatch(line, -1) {
			if found[0][0] == '\x1b' {
				if err := s.set(found[0], strings.Split(found[1], ";")); err != nil {
					return "", fmt.Errorf("line %d: %w", i+1, err)
				}
				continue
			}
			text, bars := bars(found[0], x, y)
			if bars != "" {
				fmt.Fprintf(&b, `<path d="%s"%s/>`+"\n", bars, s.attributes())
			}
			wide := charWidth * float64(utf8.RuneCountInString(text))
			if strings.TrimSpace(text) != "" {
				fmt.Fprintf(&b, `<text x="%.1f" y="%d" textLength="%.1f"%s>`, x, y+13, wide, s.attributes())
				_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder returns no errors
				b.WriteString("</text>\n")
			}
			x += wide
		}
	}
	return b.String() + "</g>\n</svg>\n", nil
}

// bars replaces the characters ▁ to █ in text by spaces. It returns the
// changed text and an SVG path that draws the bars; x, y is the position of
// the text.
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

// style is the style of a text. The zero value is plain text.
type style struct {
	colour      string // color of the text; "" is the default color
	bold, faint bool
}

// set changes the style according to the parameters of an escape sequence.
func (s *style) set(sequence string, parameters []string) error {
	for i := 0; i < len(parameters); i++ {
		n, err := strconv.Atoi("0" + parameters[i]) // an empty parameter means 0
		switch {
		case err != nil || sequence == "\x1b":
			return fmt.Errorf("control sequence %q is not known", sequence)
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
		case n == 49: // this parameter resets the background, which paint never changes
		case n == 39:
			s.colour = ""
		case n == 38 && i+2 < len(parameters) && parameters[i+1] == "5":
			i += 2
			n, _ = strconv.Atoi(parameters[i])
			if s.colour = termenv.ConvertToRGB(termenv.ANSI256Color(n)).Hex(); n < len(named) {
				s.colour = named[n]
			}
		default:
			return fmt.Errorf("style %q is not known", sequence)
		}
	}
	return nil
}

// attributes returns the SVG attributes of the style.
func (s *style) attributes() (text string) {
	if s.colour != "" {
		text = ` fill="` + s.colour + `"`
	}
	if s.bold {
		text += ` font-weight="bold"`
	}
	if s.faint {
		text += ` opacity="0.65"`
	}
	return text
}
