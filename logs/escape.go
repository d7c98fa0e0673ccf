package logs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// appendSafe appends text so that it cannot steer a terminal. What only
// formats or moves is left out, all else stays or is shown as \x07 or \u202e.
// Colours (SGR sequences) pass when colour is set, and are reset at the end.
func appendSafe(dst, text []byte, colour bool) []byte {
	coloured := false
	for len(text) > 0 {
		n := plainRun(text)
		dst = append(dst, text[:n]...)
		if text = text[n:]; len(text) == 0 {
			break
		}
		if text[0] != 0x1b {
			dst, n = appendRune(dst, text)
			text = text[n:]
			continue
		}
		n, sgr := sequence(text)
		switch {
		case n == 0:
			dst, n = fmt.Appendf(dst, `\x%02x`, text[0]), 1
		case sgr && colour:
			dst, coloured = append(dst, text[:n]...), true
		}
		text = text[n:]
	}
	if coloured {
		dst = append(dst, sgrReset...)
	}
	return dst
}

// plainRun returns how many bytes at the start are printable ASCII or tabs.
func plainRun(text []byte) int {
	for i, c := range text {
		if (c < 0x20 || c > 0x7e) && c != '\t' {
			return i
		}
	}
	return len(text)
}

// appendRune appends the first rune of text, or an escape for it, and returns
// its length in text.
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

// steers reports runes beyond ASCII that a terminal obeys or that reorder the
// text around them: C1 controls, line separators, bidirectional marks.
func steers(r rune) bool {
	return r >= 0x80 && r <= 0x9f || r == 0x061c || r == 0x200e || r == 0x200f ||
		r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// maxSequence bounds an SGR sequence that passes, in bytes.
const maxSequence = 64

// sequence returns the length of the control sequence at the start of text,
// which begins with ESC, and whether it only sets colours and weight. It is 0
// when there is no complete one: then ESC is shown and hides nothing.
func sequence(text []byte) (n int, sgr bool) {
	if len(text) < 2 {
		return 0, false
	}
	switch c := text[1]; {
	case c == '[':
		return controlSequence(text)
	case c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_':
		return controlString(text), false
	default:
		// ECMA-35: intermediate bytes, then a final byte.
		i := 1 + span(text[1:], 0x20, 0x2f)
		if i < len(text) && text[i] >= 0x30 && text[i] <= 0x7e {
			return i + 1, false
		}
		return 0, false
	}
}

// controlSequence measures ESC [ parameters, intermediates, final (ECMA-48 5.4).
func controlSequence(text []byte) (n int, sgr bool) {
	params := span(text[2:], 0x30, 0x3f)
	i := 2 + params
	inter := span(text[i:], 0x20, 0x2f)
	i += inter
	if i == len(text) || text[i] < 0x40 || text[i] > 0x7e {
		return 0, false
	}
	// Parameters from < to ? are private: not SGR, whatever the final byte.
	private := span(text[2:2+params], 0x30, 0x3b) != params
	sgr = text[i] == 'm' && inter == 0 && !private && i < maxSequence
	return i + 1, sgr
}

// controlString measures ESC ] and the like up to their terminator: BEL or
// ESC \. Without one on the line it is no string.
func controlString(text []byte) int {
	i := 2 + bytes.IndexAny(text[2:], "\a\x1b")
	switch {
	case i < 2:
		return 0
	case text[i] == '\a':
		return i + 1
	case i+1 < len(text) && text[i+1] == '\\':
		return i + 2
	}
	return 0
}

// span returns how many bytes at the start lie between lo and hi.
func span(text []byte, lo, hi byte) int {
	for i, c := range text {
		if c < lo || c > hi {
			return i
		}
	}
	return len(text)
}

// appendJSON appends a line as one JSON object and a newline:
//
//	{"time":"…Z","host":"gpu01","task":"worker:3","stream":"stdout","offset":0,"line":"text"}
//
// Text that is not UTF-8 comes as "base64" in place of "line"; "newline":false
// says that the line goes on in the next object or never ended. Controls are
// escaped, so the output is harmless on a terminal too.
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
	}{Time: t.UTC().Format("2006-01-02T15:04:05.000000000Z"), Host: host, Task: src.Task, Stream: src.Stream, Offset: l.offset}
	if utf8.Valid(l.text) {
		object.Line = string(l.text)
	} else {
		object.Base64 = l.text
	}
	if l.unended {
		object.Newline = false
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(object) // texts and numbers can always be encoded
	for _, r := range text.String() {
		if r == 0x7f || steers(r) {
			dst = fmt.Appendf(dst, `\u%04x`, r)
		} else {
			dst = utf8.AppendRune(dst, r)
		}
	}
	return dst
}
