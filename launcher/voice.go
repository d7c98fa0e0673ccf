package launcher

import (
	"fmt"
	"io"
	"sync"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
)

// voice is how plx itself speaks: lines on stderr behind a fixed prefix.
// While tasks' logs are printed it speaks through their printer, so that no
// line of plx falls into a line of theirs.
type voice struct {
	mu     sync.Mutex
	w      io.Writer
	prefix lipgloss.Style
	line   func(text string) error // set while a printer owns stderr
}

// prefix stands before every line of plx's own.
const prefix = "plx: "

func newVoice(t Terminal) *voice {
	r := lipgloss.NewRenderer(t.Stderr)
	r.SetColorProfile(termenv.Ascii)
	if t.StderrColour {
		r.SetColorProfile(termenv.ANSI)
	}
	return &voice{w: t.Stderr, prefix: r.NewStyle().Bold(true)}
}

// say writes one line. A stderr that is gone is nobody's to tell.
func (v *voice) say(format string, args ...any) {
	text := v.prefix.Render(prefix[:len(prefix)-1]) + " " + fmt.Sprintf(format, args...)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.line != nil {
		v.line(text) // as below
		return
	}
	fmt.Fprintln(v.w, text)
}

func (v *voice) sayAll(lines []string) {
	for _, line := range lines {
		v.say("%s", line)
	}
}

// through makes the voice speak through a printer, nil for itself again.
func (v *voice) through(line func(string) error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.line = line
}
