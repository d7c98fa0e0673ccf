package protocol

import (
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// EscapeName returns the name of a file as plain text. Control characters and bytes that are
// no UTF-8 become \xHH, and so does a backslash that begins such a sequence. Any other name
// stays as it is. Different names stay different: see UnescapeName.
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

// UnescapeName returns the name of which EscapeName has made plain text.
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

// escapedByte returns the byte of which EscapeName has made the beginning of text.
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
