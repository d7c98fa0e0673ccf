package policy

import (
	"slices"
	"testing"
)

func TestLostWorkerStillCountsInItsStep(t *testing.T) {
	s, err := ParseSync("backup:2")
	if err != nil {
		t.Fatal(err)
	}
	a := s.NewSelection(5, 7)
	say := func(rank int, step uint64, want Verdict) {
		t.Helper()
		if got, _, err := a.Commit(rank, step); err != nil || got != want {
			t.Errorf("worker:%d at step %d: verdict %d, %v, want %d", rank, step, got, err, want)
		}
	}
	say(1, 7, Accepted)
	if got := a.Leave(1); got != nil || a.Counted(1) != 8 || a.Counted(2) != 7 {
		t.Errorf("%v to be told, counted %d and %d", got, a.Counted(1), a.Counted(2))
	}
	say(2, 7, Accepted)
	say(3, 7, Accepted) // the third worker of this step; the lost worker counts too
	say(4, 7, Late)
	say(4, 8, Accepted)
	if got := a.Leave(2); got != nil {
		t.Errorf("%v to be told while three are left", got)
	}
	if got := a.Leave(2); got != nil {
		t.Errorf("%v to be told of one that has left before", got)
	}
	if got := a.Leave(3); !slices.Equal(got, []int{4}) {
		t.Errorf("%v to be told, want worker:4", got)
	}
	say(0, 8, Over)
}

// A worker counts only once in a step, even before the step is complete.
func TestWorkerCountsOncePerStep(t *testing.T) {
	s := newArbiter(1, 3, 5)
	if v, _, err := s.Commit(0, 5); v != Accepted || err != nil {
		t.Fatal(v, err)
	}
	if v, _, err := s.Commit(0, 5); err == nil {
		t.Errorf("accepted twice: %v", v)
	}
}
