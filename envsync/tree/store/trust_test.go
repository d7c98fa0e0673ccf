//go:build linux

package store

import (
	"testing"
	"time"
)

// If the boot time of the host is unknown, no content is trusted, so every
// content is hashed.
func TestUnknownBootTimeTrustsNoFile(t *testing.T) {
	if got := bootTimeIn("cpu  1 2\nintr 3 4\nbtime 1700000000\nprocesses 5\n"); got.Unix() != 1700000001 {
		t.Errorf("booted at %s, want the end of that second", got)
	}
	for _, text := range []string{"", "cpu  1 2\n", "btime soon\n"} {
		if got := bootTimeIn(text); time.Until(got) < 24*365*time.Hour {
			t.Errorf("%q: booted at %s, which is not far in the future", text, got)
		}
	}
	if now := time.Now(); bootTime().After(now.Add(time.Second)) || now.Sub(bootTime()) > 10*365*24*time.Hour {
		t.Errorf("this host was booted at %s", bootTime())
	}
}

// A modification time in 1980 means that the content was verified. The day
// must not be later than tomorrow; tomorrow is possible if another host's
// clock is ahead.
func TestVerificationDayIsReadFromModificationTime(t *testing.T) {
	now := time.Now()
	const day = 24 * time.Hour
	for modified, want := range map[time.Time]bool{
		verifiedEpoch: true, verifiedTime(now): true, verifiedTime(now.Add(-100 * day)): true, verifiedTime(now.Add(day)): true,
		verifiedEpoch.Add(-time.Second): false, verifiedTime(now.Add(3 * day)): false, now: false, {}: false,
	} {
		if _, ok := verifiedDay(modified); ok != want {
			t.Errorf("%s: %v, want %v", modified, ok, want)
		}
	}
	if got, _ := verifiedDay(verifiedTime(now.Add(-100 * day))); got != dayOf(now)-100 {
		t.Errorf("found right on day %d, want %d", got, dayOf(now)-100)
	}
}
