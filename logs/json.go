package logs

import (
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"
)

// appendJSON appends a line as one JSON object and a newline:
//
//	{"time":"…Z","host":"gpu01","task":"worker:3","stream":"stdout","offset":0,"line":"text"}
//
// Text that is not UTF-8 comes as "base64" in place of "line"; "newline":false
// says that the line goes on in the next object or never ended. Controls are
// escaped, so the output is harmless on a terminal too.
func appendJSON(dst []byte, host string, src Source, t time.Time, l line) []byte {
	dst = append(dst, `{"time":"`...)
	dst = t.UTC().AppendFormat(dst, "2006-01-02T15:04:05.000000000Z")
	dst = append(dst, `","host":`...)
	dst = appendString(dst, host)
	dst = append(dst, `,"task":`...)
	dst = appendString(dst, src.Task)
	dst = append(dst, `,"stream":"`...)
	dst = append(dst, src.Stream.String()...)
	dst = append(dst, `","offset":`...)
	dst = strconv.AppendInt(dst, l.offset, 10)
	if utf8.Valid(l.text) {
		dst = append(dst, `,"line":`...)
		dst = appendString(dst, l.text)
	} else {
		dst = append(dst, `,"base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, l.text)
		dst = append(dst, '"')
	}
	if l.unended {
		dst = append(dst, `,"newline":false`...)
	}
	return append(dst, '}', '\n')
}

// appendString appends a JSON string.
func appendString[T string | []byte](dst []byte, text T) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(text); {
		from := i
		for i < len(text) && text[i] >= 0x20 && text[i] < 0x7f && text[i] != '"' && text[i] != '\\' {
			i++
		}
		dst = append(dst, text[from:i]...)
		if i == len(text) {
			break
		}
		n := 1
		switch c := text[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x80:
			dst = appendUnicode(dst, rune(c))
		default:
			dst, n = appendWide(dst, string(text[i:min(i+utf8.UTFMax, len(text))]))
		}
		i += n
	}
	return append(dst, '"')
}

// appendWide appends the first rune of text, which is not ASCII.
func appendWide(dst []byte, text string) ([]byte, int) {
	r, n := utf8.DecodeRuneInString(text)
	if steers(r) || r == utf8.RuneError {
		return appendUnicode(dst, r), n
	}
	return append(dst, text[:n]...), n
}
