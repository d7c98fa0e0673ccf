package metrics

import (
	"bytes"
	"math"
	"strconv"
)

// Bits that describe a byte. The table class has them for each byte value.
const (
	before = 1 << iota // a number may follow after this byte
	starts             // a number may begin with this byte
	inName             // the byte may be part of a name
)

// class has, for each byte value, the bits before, starts and inName that
// apply.
var class = func() (c [256]byte) {
	for _, b := range []byte(" \t\b=:[(|\"',{;<>") {
		c[b] |= before
	}
	for _, b := range []byte("0123456789+-.nNiI") {
		c[b] |= starts
	}
	for b := byte('0'); b <= 'z'; b++ {
		if isDigit(b) || isLetter(b) {
			c[b] |= inName
		}
	}
	for _, b := range []byte("_-/.@") {
		c[b] |= inName
	}
	return c
}()

func isDigit(b byte) bool  { return b >= '0' && b <= '9' }
func isLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

// maxDigits is the maximum length of a number's text in bytes.
const maxDigits = 40

// numeral returns the end of the number that starts at i. natural reports
// whether the number has only digits. If no number starts at i, the end is 0.
func numeral(t []byte, i int) (end int, natural bool) {
	j := i
	if t[j] == '+' || t[j] == '-' {
		j++
	}
	if j+2 < len(t) && isLetter(t[j]) {
		if t[j+1]|0x20 == 'a' && t[j+2]|0x20 == 'n' || t[j+1]|0x20 == 'n' && t[j+2]|0x20 == 'f' {
			return special(t, j), false
		}
		return 0, false
	}
	whole := digits(t, j)
	natural = whole > j && j == i
	j = whole
	if j < len(t) && t[j] == '.' {
		if fraction := digits(t, j+1); fraction > j+1 || whole > i && isDigit(t[whole-1]) {
			j, natural = fraction, false
		}
	}
	if j == i || !isDigit(t[j-1]) && (j < 2 || !isDigit(t[j-2])) {
		return 0, false
	}
	if j < len(t) && t[j]|0x20 == 'e' {
		k := j + 1
		if k < len(t) && (t[k] == '+' || t[k] == '-') {
			k++
		}
		if exponent := digits(t, k); exponent > k {
			j, natural = exponent, false
		}
	}
	if j-i > maxDigits {
		return 0, false
	}
	return j, natural
}

func digits(t []byte, i int) int {
	for i < len(t) && isDigit(t[i]) {
		i++
	}
	return i
}

// special returns the end of the word nan, inf or infinity at i, in upper or
// lower case. It returns 0 if there is no such word at i.
func special(t []byte, i int) int {
	j := i
	for j < len(t) && isLetter(t[j]) {
		if j++; j-i > len("infinity") {
			return 0
		}
	}
	for _, word := range []string{"nan", "inf", "infinity"} {
		if bytes.EqualFold(t[i:j], []byte(word)) {
			return j
		}
	}
	return 0
}

// complete reports whether a number stands alone. end is the end of the
// number. The number does not stand alone if the next bytes make it part of a
// date, a time, an address, a version or a size.
func complete(t []byte, end int) bool {
	if end == len(t) {
		return true
	}
	switch b := t[end]; {
	case isLetter(b), b == '_', b == '/', b == '\\', b == '+', b == '*', b == '@', b == '#', b >= 0x80:
		return false
	case b == '.', b == ':', b == '-':
		return end+1 == len(t) || class[t[end+1]]&inName == 0
	}
	return true
}

// number parses the number at i and returns its value n and its end. If there
// is no number at i, end is 0.
func number(t []byte, i int) (n float64, end int) {
	if i >= len(t) || class[t[i]]&starts == 0 {
		return 0, 0
	}
	if end, _ = numeral(t, i); end == 0 {
		return 0, 0
	}
	n, err := strconv.ParseFloat(string(t[i:end]), 64)
	if err != nil && !math.IsInf(n, 0) { // a number that is too large, such as 1e999, becomes infinity
		return 0, 0
	}
	return n, end
}

// maxCount is the largest valid number of steps. Up to this limit a float64
// represents every integer exactly.
const maxCount = 1 << 53

// count parses the natural number at i, which may have commas, as in 1,200. If
// there is no natural number at i, end is 0.
func count(t []byte, i int) (n float64, end int) {
	for end = i; end < len(t) && end-i <= maxDigits; end++ {
		switch b := t[end]; {
		case isDigit(b):
			n = n*10 + float64(b-'0')
			continue
		case b == ',' && end > i && digits(t, end+1) == end+4:
			continue
		}
		break
	}
	if end == i || n > maxCount || end < len(t) && isDigit(t[end]) {
		return 0, 0
	}
	return n, end
}
