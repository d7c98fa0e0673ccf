package lease

import (
	"testing"
	"time"
)

func TestTimeLeftOfLease(t *testing.T) {
	for _, test := range []struct {
		length, grace, age time.Duration
		over               bool
		left               time.Duration
	}{
		{30 * time.Second, 10 * time.Second, 19 * time.Second, false, 0},
		{30 * time.Second, 10 * time.Second, 20 * time.Second, true, 8 * time.Second},
		{30 * time.Second, time.Minute, 15 * time.Second, true, 13 * time.Second}, // grace is reduced to half the length
		{30 * time.Second, 0, 27 * time.Second, false, 0},
		{30 * time.Second, 0, 28 * time.Second, true, 0},
		{30 * time.Second, 10 * time.Second, time.Hour, true, 0}, // the machine was suspended
		{0, time.Second, time.Hour, false, 0},
	} {
		now := time.Duration(1234)
		l := New(test.length, test.grace, func() time.Duration { return now })
		now += test.age
		if left, over := l.Left(); left != test.left || over != test.over {
			t.Errorf("%+v: %s, %v", test, left, over)
		}
		l.Renew("", 0)
		if _, over := l.Left(); over {
			t.Errorf("%+v: over after it was renewed", test)
		}
	}
}

// The lease counts from the time when a renewal was sent, as exactly as that
// can be estimated.
func TestLeaseCountsFromTimeOfSending(t *testing.T) {
	const s = time.Second
	type renewal struct {
		sent, way time.Duration // time of sending by the sender's clock, which is 1000 s ahead, and the transit time
		clock     string
		ends      time.Duration // when the lease of 30 s then ends, by the receiver's clock
	}
	for name, renewals := range map[string][]renewal{
		"at once":                {{0, 0, "a", 30 * s}, {2 * s, 0, "a", 32 * s}},
		"always as slow":         {{0, s, "a", 31 * s}, {2 * s, s, "a", 33 * s}},
		"held up":                {{0, 0, "a", 30 * s}, {2 * s, 15 * s, "a", 32*s + 17*s/1000}},
		"held up before":         {{0, 15 * s, "a", 45 * s}, {14 * s, 2 * s, "a", 46 * s}, {20 * s, s, "a", 51 * s}},
		"overtaken":              {{0, 0, "a", 30 * s}, {4 * s, 0, "a", 34 * s}, {2 * s, 3 * s, "a", 34 * s}},
		"another sender":         {{0, 0, "a", 30 * s}, {2 * s, 15 * s, "b", 47 * s}},
		"without a clock":        {{0, 0, "a", 30 * s}, {2 * s, 15 * s, "", 47 * s}},
		"a clock that is slower": {{0, 0, "a", 30 * s}, {1000 * s, s, "a", 1031 * s}},
	} {
		now := time.Duration(0)
		l := New(30*s, 0, func() time.Duration { return now })
		for i, r := range renewals {
			now = max(now, r.sent+r.way)
			l.Renew(r.clock, r.sent+1000*s)
			if ends := l.begun + l.length; ends != r.ends {
				t.Errorf("%s: the lease ends at %s after renewal %d, want %s", name, ends, i, r.ends)
			}
		}
	}
}
