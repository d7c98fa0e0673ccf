// Package style says what plx's output looks like on a terminal, by what a text means: the one
// set of styles for prefixes, headings, states and tables.
//
// A style writes its colours always. Whether an output shows any is for the caller to know,
// see [UseColour].
package style

import (
	"io"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
)

// Level is what a text is to the user.
type Level uint8

// The levels: neither good nor bad, then good, doubtful and bad.
const (
	Plain Level = iota
	Good
	Doubtful
	Bad
)

// basic writes the 16 colours that every terminal has, wide those of 256.
var basic, wide = renderer(termenv.ANSI), renderer(termenv.ANSI256)

func renderer(p termenv.Profile) *lipgloss.Renderer {
	r := lipgloss.NewRenderer(io.Discard) // it must not ask the terminal what it can
	r.SetColorProfile(p)
	return r
}

// Styles of parts of the output.
var (
	None    = basic.NewStyle()
	Name    = basic.NewStyle().Bold(true)                  // plx's own name before its lines
	Head    = basic.NewStyle().Bold(true)                  // the head of a table
	Heading = basic.NewStyle().Bold(true).Foreground(cyan) // of the output of hosts
	Problem = basic.NewStyle().Bold(true).Foreground(red)  // the bar before a line of a task's stderr
)

// Colours of every terminal.
const (
	red, green, yellow = lipgloss.Color("1"), lipgloss.Color("2"), lipgloss.Color("3")
	magenta, cyan      = lipgloss.Color("5"), lipgloss.Color("6")
	brightBlue         = lipgloss.Color("12")
)

var levels = [...]lipgloss.Style{
	Plain: None, Good: basic.NewStyle().Foreground(green), Doubtful: basic.NewStyle().Foreground(yellow), Bad: basic.NewStyle().Foreground(red),
}

// Style returns the style of the level.
func (l Level) Style() lipgloss.Style { return levels[l] }

// Paint returns the text, of one line, in the style of the level if colour is set.
func (l Level) Paint(text string, colour bool) string {
	if !colour || l == Plain {
		return text
	}
	return levels[l].Render(text)
}

// Task returns the style of a task by its index, or of a host by that of the host: neighbours
// differ. sixteen is for terminals with 16 colours, see [Sixteen]. A negative index has no
// colour.
func Task(index int, sixteen bool) lipgloss.Style {
	switch {
	case index < 0:
		return None
	case sixteen:
		return basic.NewStyle().Foreground(few[index%len(few)])
	}
	return wide.NewStyle().Foreground(palette[index%len(palette)])
}

// palette holds colours of the 256-colour cube that stand out, at 3:1 or more, on dark
// and on light backgrounds. Two that follow each other, and the last and the first, are as
// far apart as can be. No red: that marks stderr.
var palette = [...]lipgloss.Color{"33", "200", "136", "31", "134", "130", "29", "129", "96", "28", "162", "101"}

// few is the palette of terminals with 16 colours. What these look like is up to the user.
var few = [...]lipgloss.Color{cyan, magenta, green, brightBlue, yellow}

// UseColour decides from --color (always, never, auto or empty) and the
// environment whether an output is coloured. A mode given by hand comes before
// NO_COLOR; an unknown mode counts as auto.
func UseColour(mode string, terminal bool, getenv func(string) string) bool {
	switch mode {
	case "always":
		return true
	case "never":
		return false
	}
	return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// Sixteen reports whether a terminal with this environment (os.Environ) has 16 colours
// only, and not 256.
func Sixteen(environ []string) bool { return colorprofile.Env(environ) < colorprofile.ANSI256 }
