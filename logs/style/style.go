// Package style defines the colours and weights of plx's terminal output: for
// prefixes, headings, states and tables. Each style has the name of what a
// text means, such as Good.
//
// A style always produces control sequences. The caller decides whether an
// output may have colours, see [UseColour].
package style

import (
	"io"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
)

// Level is the meaning of a text for the user: neutral, good, doubtful or bad.
type Level uint8

const (
	Plain Level = iota
	Good
	Doubtful
	Bad
)

// basic renders with the 16 standard terminal colours, and wide with 256
// colours.
var basic, wide = renderer(termenv.ANSI), renderer(termenv.ANSI256)

func renderer(p termenv.Profile) *lipgloss.Renderer {
	r := lipgloss.NewRenderer(io.Discard) // The renderer only formats strings. With os.Stdout as output, it would query the terminal.
	r.SetColorProfile(p)
	return r
}

// Styles of parts of the output that do not depend on a level.
var (
	None    = basic.NewStyle()
	Name    = basic.NewStyle().Bold(true)                  // "plx" at the beginning of plx's own lines
	Head    = basic.NewStyle().Bold(true)                  // the head of a table
	Heading = basic.NewStyle().Bold(true).Foreground(cyan) // heading above the output of hosts
	Problem = basic.NewStyle().Bold(true).Foreground(red)  // the bar between prefix and text of a task's stderr line
)

// Colours that every terminal has, by ANSI number.
const (
	red, green, yellow = lipgloss.Color("1"), lipgloss.Color("2"), lipgloss.Color("3")
	magenta, cyan      = lipgloss.Color("5"), lipgloss.Color("6")
	brightBlue         = lipgloss.Color("12")
)

var levels = [...]lipgloss.Style{
	Plain: None, Good: basic.NewStyle().Foreground(green), Doubtful: basic.NewStyle().Foreground(yellow), Bad: basic.NewStyle().Foreground(red),
}

// Style returns the lipgloss style that marks the level.
func (l Level) Style() lipgloss.Style { return levels[l] }

// Paint returns text, which must be one line, in the style of the level. If
// colour is false it returns text unchanged.
func (l Level) Paint(text string, colour bool) string {
	if !colour || l == Plain {
		return text
	}
	return levels[l].Render(text)
}

// Task returns the style for the prefix of the task or host with the given
// index. Tasks with neighbouring indexes have different colours. A negative
// index has no colour. sixteen selects the palette for terminals with 16
// colours, see [Sixteen].
func Task(index int, sixteen bool) lipgloss.Style {
	switch {
	case index < 0:
		return None
	case sixteen:
		return basic.NewStyle().Foreground(few[index%len(few)])
	}
	return wide.NewStyle().Foreground(palette[index%len(palette)])
}

// palette lists the prefix colours of tasks, as numbers of the 256-colour
// cube. Each has a contrast of at least 3:1 on dark and on light backgrounds.
// Neighbours in the list, including the last and the first, differ as much as
// possible. There is no red, because red marks stderr.
var palette = [...]lipgloss.Color{"33", "200", "136", "31", "134", "130", "29", "129", "96", "28", "162", "101"}

// few lists the prefix colours of tasks for terminals with 16 colours. The
// user's terminal settings define how these colours look.
var few = [...]lipgloss.Color{cyan, magenta, green, brightBlue, yellow}

// UseColour reports whether an output should be coloured, from the --color
// option (always, never, auto or empty) and the environment. The option
// overrides NO_COLOR. An unknown value counts as auto.
func UseColour(mode string, terminal bool, getenv func(string) string) bool {
	switch mode {
	case "always":
		return true
	case "never":
		return false
	}
	return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// Sixteen reports whether a terminal with the environment environ (from
// os.Environ) supports fewer than 256 colours.
func Sixteen(environ []string) bool { return colorprofile.Env(environ) < colorprofile.ANSI256 }
