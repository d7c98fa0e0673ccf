package logs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// control matches a control sequence of ECMA-48 and ECMA-35 at the beginning
// of a text. Such a sequence is CSI with parameters, intermediate bytes and a
// final byte; or a control string up to its terminator, BEL or ESC \; or ESC
// with intermediate bytes and a final byte.
var control = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\x1b(\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\a\x1b]*(\a|\x1b\\)|[ -/]+[0-~]|[0-OQ-WYZ\\\x60-~])`)
})

// commands lists the bytes that can begin a terminal command.
const commands = "\r\b\x1b"

// sgr matches a control sequence of at most 64 bytes that only sets colours
// and weight (SGR). A sequence with private parameters, the characters from <
// to ?, is not SGR, even if it ends in m.
var sgr = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\x1b\[[0-;]{0,61}m$`) })

// appendSafe appends text to dst in a form that cannot control a terminal. It
// removes control sequences and shows other control characters as \x07 or
// \u202e. If colour is set, it keeps SGR sequences (colours and weight) and
// resets the colours at the end. It shows an ESC that begins no complete
// sequence as \x1b, and keeps the text after the ESC.
func appendSafe(dst, text []byte, colour bool) []byte {
	coloured := false
	for len(text) > 0 {
		n := plainRun(text)
		dst = append(dst, text[:n]...)
		if text = text[n:]; len(text) == 0 {
			break
		}
		sequence := control().Find(text)
		switch n = len(sequence); {
		case n == 0:
			dst, n = appendRune(dst, text)
		case colour && sgr().Match(sequence):
			dst, coloured = append(dst, sequence...), true
		}
		text = text[n:]
	}
	if coloured {
		dst = append(dst, ansi.ResetStyle...)
	}
	return dst
}

// unformatted returns text without its control sequences, for example colours.
func unformatted(text []byte) []byte {
	var plain []byte
	for {
		i := bytes.IndexByte(text, ansi.ESC)
		switch {
		case i < 0 && plain == nil:
			return text
		case i < 0:
			return append(plain, text...)
		}
		plain = append(plain, text[:i]...)
		n := len(control().Find(text[i:]))
		if n == 0 {
			plain, n = append(plain, ansi.ESC), 1
		}
		text = text[i+n:]
	}
}

// Safe returns text of one or more lines in a form that cannot control a
// terminal. It keeps colours if colour is set.
func Safe(text []byte, colour bool) []byte {
	var safe []byte
	for line := range bytes.Lines(text) {
		body, ended := bytes.CutSuffix(line, []byte("\n"))
		safe = appendSafe(safe, bytes.TrimSuffix(body, []byte("\r")), colour)
		if ended {
			safe = append(safe, '\n')
		}
	}
	return safe
}

// Escape returns line, which comes from another program, in a form that plx
// can print within its own messages. It removes colours. Other characters that
// could control a terminal, reorder the text or begin another line are shown
// as \x1b, \x0a or \u202e. Tabs stay.
func Escape(line string) string {
	text := []byte(line)
	safe := make([]byte, 0, len(text))
	for len(text) > 0 {
		n := plainRun(text)
		safe = append(safe, text[:n]...)
		if text = text[n:]; len(text) == 0 {
			break
		}
		if sequence := control().Find(text); sgr().Match(sequence) {
			n = len(sequence)
		} else {
			safe, n = appendRune(safe, text)
		}
		text = text[n:]
	}
	return string(safe)
}

// EscapeJSON returns equivalent JSON that cannot control a terminal. It
// escapes DEL, C1 controls and bidirectional marks, which encoding/json leaves
// as they are.
func EscapeJSON(text []byte) []byte {
	var safe []byte
	for _, r := range string(text) {
		if r == 0x7f || steers(r) {
			safe = fmt.Appendf(safe, `\u%04x`, r)
		} else {
			safe = utf8.AppendRune(safe, r)
		}
	}
	return safe
}

// plainRun returns the number of bytes at the start of text that are printable
// ASCII or tabs.
func plainRun(text []byte) int {
	for i, c := range text {
		if (c < 0x20 || c > 0x7e) && c != '\t' {
			return i
		}
	}
	return len(text)
}

// appendRune appends the first rune of text to dst, escaped if it could
// control a terminal. It returns dst and the length of the rune in text.
func appendRune(dst, text []byte) ([]byte, int) {
	r, n := utf8.DecodeRune(text)
	switch {
	case r == utf8.RuneError && n <= 1, r < 0x20, r == 0x7f:
		return fmt.Appendf(dst, `\x%02x`, text[0]), 1
	case steers(r):
		return fmt.Appendf(dst, `\u%04x`, r), n
	}
	return append(dst, text[:n]...), n
}

// steers reports whether r is a rune beyond ASCII that controls a terminal or
// reorders the text around it: a C1 control, a line separator or a
// bidirectional mark.
func steers(r rune) bool {
	return r >= 0x80 && r <= 0x9f || r == 0x061c || r == 0x200e || r == 0x200f ||
		r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// appendJSON appends one line of a log to dst, as one JSON object and a
// newline:
//
//	{"time":"…Z","host":"gpu01","task":"worker:3","stream":"stdout","offset":0,"line":"text"}
//
// If the text is not UTF-8, the object has "base64" instead of "line". The
// field "newline":false means that the line continues in the next object or
// never ended. Control characters are escaped, so the output is safe to print
// on a terminal.
func appendJSON(dst []byte, host string, src Source, t time.Time, l line) []byte {
	object := struct {
		Time    string `json:"time"`
		Host    string `json:"host"`
		Task    string `json:"task"`
		Stream  Stream `json:"stream"`
		Offset  int64  `json:"offset"`
		Line    any    `json:"line,omitempty"`
		Base64  []byte `json:"base64,omitempty"`
		Newline any    `json:"newline,omitempty"`
		Dropped int64  `json:"dropped,omitempty"`
	}{Time: t.UTC().Format("2006-01-02T15:04:05.000000000Z"), Host: host, Task: src.Task, Stream: src.Stream, Offset: l.offset, Dropped: l.dropped}
	if utf8.Valid(l.text) {
		object.Line = string(l.text)
	} else {
		object.Base64 = l.text
	}
	if l.unended {
		object.Newline = false
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(object) // ignore the error: strings, numbers and bytes can always be encoded
	return append(dst, EscapeJSON(text.Bytes())...)
}
