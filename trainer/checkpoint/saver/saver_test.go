package saver

import (
	"context"
	"errors"
	"testing"
	"time"
)

func quiet(func() string) func() { return func() {} }

// A chief that is told to stop while it holds the job ends.
func TestAHeldJobEnds(t *testing.T) {
	s := New(Config{Waiting: quiet})
	s.hold([]Request{{}, {Hold: true, Number: 3}}, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	if err := s.rest(ctx, 1); !errors.Is(err, stopped) {
		t.Errorf("got %v", err)
	}
	s.Resume(2) // of a request before
	if s.resting == nil {
		t.Fatal("the answer to another request ended it")
	}
	s.Resume(3)
	if err := s.rest(t.Context(), 1); err != nil {
		t.Errorf("resumed: %v", err)
	}
}

// With state that workers carry, the step after the checkpoint is still taken.
func TestCarriedStateIsSavedBeforeTheRest(t *testing.T) {
	s := New(Config{Waiting: quiet})
	s.hold([]Request{{Hold: true}}, 4).carried = true
	if err := s.rest(t.Context(), 4); err != nil {
		t.Errorf("after the step of the checkpoint: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.rest(ctx, 5); err == nil {
		t.Error("the step after it did not rest")
	}
}

// After the chief's last step the clock says when a checkpoint is due.
func TestWhatIsDueAfterTheChief(t *testing.T) {
	for _, c := range []struct {
		steps int
		since time.Duration
		want  bool
	}{{5, meanwhile, true}, {5, meanwhile / 2, false}, {0, 2 * meanwhile, false}} {
		s := New(Config{Steps: c.steps})
		s.last = time.Now().Add(-c.since)
		if got := s.overdue(); got != c.want {
			t.Errorf("every %d steps, the last %v ago: %t", c.steps, c.since, got)
		}
	}
}
