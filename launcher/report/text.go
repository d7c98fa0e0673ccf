package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/plx-run/plx/logs"
)

// clean returns text from a run as one line without control characters.
func clean(text string) string {
	return logs.Escape(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}

// block joins lines from a run and removes their colours and control
// sequences.
func block(lines []string) string {
	return string(logs.Safe([]byte(strings.Join(lines, "\n")), false))
}

// unit is the unit in which a chart shows its values, such as MiB.
type unit struct {
	scale  float64 // the size of one unit, such as 1048576 for MiB
	suffix string
}

// bytesUnit returns a unit for byte counts up to greatest. The parameter rate
// is "/s" for bytes per second, and empty for bytes.
func bytesUnit(greatest float64, rate string) unit {
	names := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	return prefixed(greatest, 1024, names, " ", rate)
}

// countUnit returns a unit for numbers with an absolute value up to greatest.
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

// prefixed returns the largest unit in names that is at most greatest. names
// begins with the smallest unit, and each unit is base times the unit before
// it.
func prefixed(greatest, base float64, names []string, space, rate string) unit {
	scale, i := 1.0, 0
	for ; i+1 < len(names) && greatest >= scale*base; i++ {
		scale *= base
	}
	return unit{scale, space + names[i] + rate}
}

// timeUnit returns a unit for durations up to greatest, which is in seconds.
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

// number formats a value with four significant digits.
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

// text formats a value in the unit u.
func (u unit) text(v float64) string {
	if strings.HasPrefix(u.suffix, "e") {
		return number(v)
	}
	return number(v/u.scale) + u.suffix
}

// moment formats a time in UTC, or returns "" for the zero time.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// duration returns how long a run took or has been running, or "" if that is
// not known.
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
