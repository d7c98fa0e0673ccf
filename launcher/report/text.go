package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/plx-run/plx/logs"
)

// clean returns foreign text as one line without controls.
func clean(text string) string {
	return logs.Escape(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}

// block joins foreign lines without colours and control sequences.
func block(lines []string) string {
	return string(logs.Safe([]byte(strings.Join(lines, "\n")), false))
}

// unit is how the values of a chart are written.
type unit struct {
	scale  float64 // one unit, in values
	suffix string
}

// bytesUnit returns the unit for bytes up to greatest, or for bytes a second.
func bytesUnit(greatest float64, rate string) unit {
	names := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	return prefixed(greatest, 1024, names, " ", rate)
}

// countUnit returns the unit for numbers up to greatest in size.
func countUnit(greatest float64) unit {
	switch {
	case greatest != 0 && (greatest < 0.005 || greatest >= 1e16):
		power := math.Floor(math.Log10(greatest))
		if scale := math.Pow(10, power); scale > 0 && finite(scale) {
			return unit{scale, fmt.Sprintf("e%+03d", int(power))}
		}
	case greatest >= 1e4:
		return prefixed(greatest, 1000, []string{"", "k", "M", "G", "T"}, "", "")
	}
	return unit{1, ""}
}

// prefixed returns the last unit of names of which greatest has from 1 on.
func prefixed(greatest, base float64, names []string, space, rate string) unit {
	scale, i := 1.0, 0
	for ; i+1 < len(names) && greatest >= scale*base; i++ {
		scale *= base
	}
	return unit{scale, space + names[i] + rate}
}

// timeUnit returns the unit for times up to greatest, in seconds.
func timeUnit(greatest float64) unit {
	switch {
	case greatest > 4*24*3600:
		return unit{24 * 3600, " d"}
	case greatest > 2*3600:
		return unit{3600, " h"}
	case greatest > 120:
		return unit{60, " min"}
	}
	return unit{1, " s"}
}

// number writes a value with four significant digits.
func number(v float64) string {
	v = rounded(v)
	if size := math.Abs(v); size != 0 && (size < 1e-4 || size >= 1e7) {
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

func rounded(v float64) float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'e', 3, 64), 64)
	return v
}

// text writes a value in the unit.
func (u unit) text(v float64) string {
	if strings.HasPrefix(u.suffix, "e") {
		return number(v)
	}
	return number(v/u.scale) + u.suffix
}

// moment writes a time; "" if it is zero.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// duration is how long a run took, or has run; "" if that is not known.
func (r Run) duration() string {
	end := r.Ended
	if end.IsZero() {
		end = r.AsOf
	}
	if r.Created.IsZero() || end.Before(r.Created) {
		return ""
	}
	return end.Sub(r.Created).Round(time.Second).String()
}
