package saver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/checkpoint/store"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
)

func quiet(func() string) func() { return func() {} }

// If the context ends while the chief is paused, the pause ends with the
// context's error.
func TestCancelEndsPausedChief(t *testing.T) {
	s := New(Config{Waiting: quiet})
	s.hold([]Request{{}, {Hold: true, Number: 3}}, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	if err := s.waitPaused(ctx, 1); !errors.Is(err, stopped) {
		t.Errorf("got %v", err)
	}
	s.Resume(2) // of a request before
	if s.paused == nil {
		t.Fatal("the answer to another request ended it")
	}
	s.Resume(3)
	if err := s.waitPaused(t.Context(), 1); err != nil {
		t.Errorf("resumed: %v", err)
	}
}

// If workers carry recurrent state, the chief makes one more step before it
// pauses.
func TestChiefMakesOneStepBeforePauseWithCarriedState(t *testing.T) {
	s := New(Config{Waiting: quiet})
	s.hold([]Request{{Hold: true}}, 4).carried = true
	if err := s.waitPaused(t.Context(), 4); err != nil {
		t.Errorf("after the step of the checkpoint: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.waitPaused(ctx, 5); err == nil {
		t.Error("the step after it did not rest")
	}
}

// After the chief's last step, checkpoints are due by time instead of by
// steps.
func TestCheckpointsAfterChiefsLastStepAreTimed(t *testing.T) {
	for _, c := range []struct {
		steps int
		since time.Duration
		want  bool
	}{{5, finalPeriod, true}, {5, finalPeriod / 2, false}, {0, 2 * finalPeriod, false}} {
		s := New(Config{Steps: c.steps})
		s.last = time.Now().Add(-c.since)
		if got := s.overdue(); got != c.want {
			t.Errorf("every %d steps, the last %v ago: %t", c.steps, c.since, got)
		}
	}
}

// writing returns a store that is busy with a checkpoint until the test ends.
func writing(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{Peers: peers.Config{Self: cluster.Chief, Workers: 1}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) // ends the save, which no task completes
	if err := s.Expect(store.Expected{Manifest: checkpoint.Manifest{Step: 1}, Holders: []cluster.Task{cluster.Chief}}); err != nil {
		t.Fatal(err)
	}
	return s
}

// Late is called once for each due checkpoint that must wait, not for steps in
// between.
func TestLateCheckpointIsReportedOnce(t *testing.T) {
	var late []string
	s := New(Config{Steps: 50, Store: writing(t), Waiting: quiet, Late: func(step, writing int) {
		late = append(late, fmt.Sprintf("%d while %d", step, writing))
	}})
	s.at = 55                                                          // late itself
	for _, step := range []int{56, 99, 100, 101, 149, 151, 152, 200} { // 150 was jumped over
		if err := s.After(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(late, ", "); got != "100 while 55, 151 while 55, 200 while 55" {
		t.Errorf("late: %s", got)
	}
}

// A checkpoint becomes due when the last one is one period old. It stays due
// as long as another is being written.
func TestCheckpointIsDueAfterPeriod(t *testing.T) {
	const period = 600 * time.Second
	busy := writing(t)
	for _, c := range []struct {
		period, since time.Duration
		want          bool
	}{{period, period, true}, {period, period / 2, false}, {0, 2 * period, false}} {
		s := New(Config{Period: c.period, Store: busy, Waiting: quiet})
		s.last = time.Now().Add(-c.since)
		if err := s.After(t.Context(), 7); err != nil {
			t.Fatal(err)
		}
		if s.due != c.want {
			t.Errorf("every %v, the last %v ago: due is %t", c.period, c.since, s.due)
		}
		s.last = time.Now()
		if err := s.After(t.Context(), 8); err != nil || s.due != c.want {
			t.Errorf("every %v, one step later: due is %t, %v", c.period, s.due, err)
		}
	}
}
