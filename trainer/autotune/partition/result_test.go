package partition

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func checkLines(t *testing.T, r Result) {
	t.Helper()
	for _, line := range r.Lines() {
		if utf8.RuneCountInString(line) > 140 || strings.Contains(line, "NaN") || strings.ContainsAny(line, "\n\x1b") {
			t.Errorf("line %q", line)
		}
	}
}

func TestLines(t *testing.T) {
	s := NewSearch(4, 1, 64)
	s.Skip(2, "ps:0 has no room: it needs 3.2 GB\n\x1b[31m"+strings.Repeat("and more ", 20))
	valley := curve(20.4, 51, 0.408)
	for p, more := s.Next(); more; p, more = s.Next() {
		off := time.Duration(p*7919%5) * 100 * time.Microsecond
		s.Add(p, []time.Duration{valley(p) + off, valley(p) * 101 / 100, valley(p) * 102 / 100})
	}
	r := s.Result()
	checkLines(t, r)
	want := `
P      2: left out: ps:0 has no room: it needs 3.2 GB  [31mand more and more and more and more and more and more and more and more and more…
P      4:   35.13ms ± 531.7µs in 3 steps; fit 35.12ms, off by +0.0 %
P      8:   30.34ms ± 215.4µs in 3 steps; fit 30.37ms, off by -0.1 %
P     11:   29.92ms ± 224.8µs in 3 steps; fit 29.88ms, off by +0.1 %
P     16:   30.52ms ± 212.1µs in 3 steps; fit 30.53ms, off by -0.0 %
fit t(P) = 20.57ms + 51.44ms/P + 421.4µs*P: lowest at P = 11.0, off by at most 0.1 %
choice P = 11: the fastest of 4`
	if got := strings.Join(r.Lines(), "\n"); got != strings.TrimSpace(want) {
		t.Errorf("got\n%s", got)
	}
}
