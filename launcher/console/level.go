package console

import (
	"io"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
)

// Level is what a text is to the user. A colour shows it.
type Level uint8

// The levels: neither good nor bad, then good, doubtful and bad.
const (
	Plain Level = iota
	Good
	Doubtful
	Bad
)

// renderer writes the eight colours that every terminal has. Whether an output shows
// colours, the caller of Paint and of bold knows.
var renderer = func() *lipgloss.Renderer {
	r := lipgloss.NewRenderer(io.Discard)
	r.SetColorProfile(termenv.ANSI)
	return r
}()

// Paint returns the text, of one line, in the colour of the level if colour is set.
func (l Level) Paint(text string, colour bool) string {
	if !colour || l == Plain {
		return text
	}
	return l.style().Render(text)
}

func (l Level) style() lipgloss.Style {
	if l == Plain {
		return renderer.NewStyle()
	}
	of := map[Level]lipgloss.Color{Good: "2", Doubtful: "3", Bad: "1"} // green, yellow, red
	return renderer.NewStyle().Foreground(of[l])
}

// bold returns the text, of one line, in bold.
func bold(text string) string { return renderer.NewStyle().Bold(true).Render(text) }
