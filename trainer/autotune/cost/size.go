package cost

import (
	"fmt"
	"math"
	"strings"
	"unicode"
)

// size writes bytes with three digits, in powers of 1000 as links are.
func size(bytes float64) string {
	if math.IsNaN(bytes) || math.IsInf(bytes, 0) {
		return "-"
	}
	unit := 0
	units := []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	for bytes >= 999.5 && unit < len(units)-1 {
		bytes /= 1000
		unit++
	}
	switch {
	case unit == 0 || bytes >= 99.95:
		return fmt.Sprintf("%.0f %s", bytes, units[unit])
	case bytes >= 9.995:
		return fmt.Sprintf("%.1f %s", bytes, units[unit])
	}
	return fmt.Sprintf("%.2f %s", bytes, units[unit])
}

func number(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// clean makes a name fit for a terminal and for so many letters; of one that
// is longer the end is kept, which tells names apart.
func clean(name string, most int) string {
	letters := []rune(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, name))
	if len(letters) > most {
		return "…" + string(letters[len(letters)-most+1:])
	}
	return string(letters)
}

func shorten(line string, most int) string {
	if letters := []rune(line); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return line
}
