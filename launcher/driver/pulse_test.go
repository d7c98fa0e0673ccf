package driver

import (
	"testing"
	"time"
)

func TestPulse(t *testing.T) {
	now := sinceBoot()
	if now <= 0 {
		t.Fatalf("the clock says %s", now)
	}
	p := newPulse(30*time.Second, now)
	after := func(d time.Duration) time.Duration { now += d; return now }
	for _, d := range []time.Duration{time.Second, 9 * time.Second, 0} {
		if gap := p.take(after(d)); gap != 0 {
			t.Errorf("after %s: suspended for %s", d, gap)
		}
	}
	p.touch(after(12 * time.Second)) // the process was suspended, and runs again before take is called
	p.touch(after(time.Second))
	if gap := p.take(after(time.Second)); gap != 12*time.Second {
		t.Errorf("suspended for %s, want 12s", gap)
	}
	if gap := p.take(after(time.Second)); gap != 0 {
		t.Errorf("suspended for %s twice", gap)
	}
	if p := newPulse(time.Second, now); p.take(after(time.Second)) != 0 {
		t.Error("a busy machine was suspended")
	}
}
