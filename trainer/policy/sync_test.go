package policy

import (
	"slices"
	"testing"
)

func TestParseSync(t *testing.T) {
	for _, text := range []string{"sync", "async", "ssp:0", "ssp:12", "group:3", "backup:1"} {
		if s, err := ParseSync(text); err != nil || s.String() != text {
			t.Errorf("%s: %v, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "ssp", "ssp:", "ssp:-1", "ssp:+1", "ssp:01", "async:1", "group:x", "backup:1:2", "SYNC", "later"} {
		if s, err := ParseSync(text); err == nil {
			t.Errorf("%q: accepted as %v", text, s)
		}
	}
}

func TestParseArchitecture(t *testing.T) {
	for _, a := range architectures {
		if got, err := ParseArchitecture(a.String()); err != nil || got != a {
			t.Errorf("%s: got %v, %v", a, got, err)
		}
	}
	if a, err := ParseArchitecture("ring"); err == nil {
		t.Errorf("ring: accepted as %v", a)
	}
}

func TestSSPWorkerWaitsForTheSlowest(t *testing.T) {
	s, err := ParseSync("ssp:2")
	if err != nil {
		t.Fatal(err)
	}
	c := s.NewPace([]uint64{0, 0, 0})
	for steps := range uint64(2) {
		if got := c.Applied(0, steps+1); !slices.Equal(got, []int{0}) {
			t.Errorf("after %d steps: released %v, want worker 0", steps+1, got)
		}
	}
	if got := c.Applied(0, 3); got != nil {
		t.Errorf("three steps ahead with a bound of two: released %v", got)
	}
	if got := c.Applied(1, 1); !slices.Equal(got, []int{1}) {
		t.Errorf("released %v, want worker 1", got)
	}
	if got := c.Applied(2, 1); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("released %v, want workers 0 and 2", got)
	}
	for rank, want := range []bool{true, false, false} {
		if got := s.StartsAhead([]uint64{5, 2, 3}, rank); got != want {
			t.Errorf("worker %d starts ahead: %t", rank, got)
		}
	}
}
