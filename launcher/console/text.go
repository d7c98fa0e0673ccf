package console

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/logs/style"
)

// All text that plx itself prints passes through visible or oneLine, which
// escape control characters. plx adds colours afterwards. So a text that plx
// quotes, such as an error of a host, can neither control the terminal nor
// imitate a line of plx.

// visible splits text into lines and escapes terminal control characters. It
// indents all lines but the first, so that quoted text cannot look like a
// message of plx.
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

// continued is the indent of a line that continues the message of the line
// above.
const continued = "  "

// oneLine returns text as one line, for a table cell, a progress line or a
// prompt. It joins lines with "; ", replaces tabs and escapes control
// characters.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	return logs.Escape(strings.ReplaceAll(strings.Join(lines, "; "), "\t", " "))
}

// Print writes a text to stdout as the result of a command.
func (t Terminal) Print(format string, args ...any) error {
	return t.Marked(style.Plain, "", fmt.Sprintf(format, args...))
}

// Marked writes a line to stdout: word in the colour of level, followed by
// text.
func (t Terminal) Marked(level style.Level, word, text string) error {
	_, err := fmt.Fprintf(t.Stdout, "%s%s\n", level.Paint(logs.Escape(word), t.StdoutColour), strings.Join(visible(text), "\n"))
	return err
}

// Text writes text to stdout unchanged, for another program. If stdout is a
// terminal, it escapes control characters.
func (t Terminal) Text(text string) error {
	if t.StdoutTTY {
		text = string(logs.Safe([]byte(text), false))
	}
	_, err := io.WriteString(t.Stdout, text)
	return err
}

// JSON returns a writer of JSON to stdout that escapes control characters.
// Each Write must end at a character boundary, as json.Encoder's do.
func (t Terminal) JSON() io.Writer { return jsonWriter{t.Stdout} }

type jsonWriter struct{ to io.Writer }

func (w jsonWriter) Write(text []byte) (int, error) {
	if _, err := w.to.Write(logs.EscapeJSON(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// separate returns the text of each error that err joins, or only the text of
// err. With one message per error, no error can imitate another by a newline
// in its text.
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
