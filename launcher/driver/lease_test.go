package driver

import (
	"testing"
	"time"
)

func TestStamper(t *testing.T) {
	var s stamper
	now := time.Now()
	first := s.stamp(now)
	second := s.stamp(now.Add(2 * time.Second))
	if first.Clock == "" || second.Clock != first.Clock || second.Sent-first.Sent != 2*time.Second {
		t.Errorf("%+v, then %+v", first, second)
	}
	// As if the machine had slept for 5 s: the wall clock advanced, the
	// monotonic clock did not.
	s.skew -= 5 * time.Second
	third := s.stamp(now.Add(4 * time.Second))
	if third.Clock == first.Clock || third.Sent != 0 {
		t.Errorf("%+v after a sleep, %+v before", third, second)
	}
	if fourth := s.stamp(now.Add(6 * time.Second)); fourth.Clock != third.Clock || fourth.Sent != 2*time.Second {
		t.Errorf("%+v, then %+v", third, fourth)
	}
}
