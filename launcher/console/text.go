package console

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/logs/style"
)

// All that plx itself prints passes through visible or oneLine, on stderr and on stdout, and
// gets its colours after that. So no host, command or file can steer the terminal by a text
// that plx quotes, nor write a line that seems to be plx's own.

// visible returns the lines of a text, with escapes for what a terminal obeys. The second
// line and those after it are indented: they may be of a text that plx quotes.
func visible(text string) []string {
	lines := strings.Split(strings.TrimRight(text, "\r\n"), "\n")
	for i, line := range lines {
		line = logs.Escape(strings.TrimRight(line, "\r"))
		if i > 0 && !strings.HasPrefix(line, continued) {
			line = continued + line
		}
		lines[i] = line
	}
	return lines
}

// continued begins a line that goes on with the text of the line above.
const continued = "  "

// oneLine returns a text as one line without tabs, for a cell, a row or a question.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	return logs.Escape(strings.ReplaceAll(strings.Join(lines, "; "), "\t", " "))
}

// Print writes a text to stdout, as a result of a command.
func (t Terminal) Print(format string, args ...any) error {
	return t.Marked(style.Plain, "", fmt.Sprintf(format, args...))
}

// Marked writes a word in the colour of the level to stdout, and a text behind it.
func (t Terminal) Marked(level style.Level, word, text string) error {
	_, err := fmt.Fprintf(t.Stdout, "%s%s\n", level.Paint(logs.Escape(word), t.StdoutColour), strings.Join(visible(text), "\n"))
	return err
}

// Text writes a text of several lines to stdout, for another program. On a terminal it is
// harmless.
func (t Terminal) Text(text string) error {
	if t.StdoutTTY {
		text = string(logs.Safe([]byte(text), false))
	}
	_, err := io.WriteString(t.Stdout, text)
	return err
}

// JSON returns a writer of JSON to stdout. Each Write must be of whole characters, as those
// of an encoder are.
func (t Terminal) JSON() io.Writer { return jsonWriter{t.Stdout} }

type jsonWriter struct{ to io.Writer }

func (w jsonWriter) Write(text []byte) (int, error) {
	if _, err := w.to.Write(logs.EscapeJSON(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// separate returns a text for each of the errors that err joins, or else the text of err: no
// text of one of them can pose as another.
func separate(err error) (texts []string) {
	text := err.Error()
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		all := e.Unwrap()
		if joined := errors.Join(all...); joined == nil || joined.Error() != text {
			break
		}
		for _, one := range all {
			texts = append(texts, separate(one)...)
		}
		return texts
	case interface{ Unwrap() error }:
		if below := e.Unwrap(); below != nil && below.Error() == text {
			return separate(below)
		}
	}
	return []string{strings.TrimSpace(text)}
}
