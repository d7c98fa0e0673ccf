package protocol

import (
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// EscapeName returns a file name as printable text. It writes control
// characters and invalid UTF-8 bytes as \xHH, and also a backslash that begins
// such a sequence. Other names are unchanged. UnescapeName reverses the
// conversion, so different names stay different.
func EscapeName(name string) string {
	var b strings.Builder
	for i, size := 0, 0; i < len(name); i += size {
		var r rune
		r, size = utf8.DecodeRuneInString(name[i:])
		if _, escaped := escapedByte(name[i:]); !escaped && !unicode.IsControl(r) && (r != utf8.RuneError || size > 1) {
			b.WriteString(name[i : i+size])
			continue
		}
		for _, c := range []byte(name[i : i+size]) {
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String()
}

// UnescapeName returns the file name that EscapeName has converted to plain.
func UnescapeName(plain string) string {
	var b strings.Builder
	for len(plain) > 0 {
		c, escaped := escapedByte(plain)
		if !escaped {
			b.WriteByte(plain[0])
			plain = plain[1:]
			continue
		}
		b.WriteByte(c)
		plain = plain[len(`\xHH`):]
	}
	return b.String()
}

// escapedByte decodes the \xHH sequence at the beginning of text. It reports
// ok false if text begins with none.
func escapedByte(text string) (c byte, ok bool) {
	if len(text) < len(`\xHH`) || text[:2] != `\x` || strings.ContainsAny(text[2:4], "ABCDEF") {
		return 0, false
	}
	raw, err := hex.DecodeString(text[2:4])
	if err != nil {
		return 0, false
	}
	return raw[0], true
}
