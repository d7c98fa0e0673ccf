package autotune

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/autotune/cost"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
)

// The tuner finds the fastest number of partitions in few steps and with few
// moves, and a second run finds the same. The slow steps right after a move do
// not count.
func TestSearchFindsFastestPartitions(t *testing.T) {
	ms := func(x float64) time.Duration { return time.Duration(x * float64(time.Millisecond)) }
	for name, c := range map[string]struct {
		cost        func(parts float64) time.Duration
		least, most int
		want        []int // any of them
	}{
		"one":              {cost: func(p float64) time.Duration { return ms(10 + 2*p) }, least: 1, want: []int{1}},
		"least":            {cost: func(p float64) time.Duration { return ms(10 + 2*p) }, least: 3, want: []int{3}},
		"between":          {cost: func(p float64) time.Duration { return ms(5 + 200/p + 0.5*p) }, least: 1, want: []int{19, 20, 21}},
		"beyond all":       {cost: func(p float64) time.Duration { return ms(1 + 1000/p) }, least: 1, want: []int{64}},
		"beyond the limit": {cost: func(p float64) time.Duration { return ms(1 + 1000/p) }, least: 1, most: 13, want: []int{13}},
		"no difference":    {cost: func(float64) time.Duration { return ms(20) }, least: 1, want: []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			run := func() *job {
				j := start(t, Config{Declaration: declare(t, 4, dense("w", 100), table("words", 1000, 8)), Least: []int{c.least}, Most: c.most, TuneAfterSteps: 3, Search: true, Report: 30})
				if err := j.train(0, 400, func(since int) time.Duration {
					if since <= 2 { // steps right after a move are slow, as with cold caches, and slower with more partitions
						return time.Second + 100*ms(float64(j.parts("words")))
					}
					return c.cost(float64(j.parts("words")))
				}, nil); err != nil {
					t.Fatal(err)
				}
				return j
			}
			j := run()
			got := j.parts("words")
			if !slices.Contains(c.want, got) || !j.says(fmt.Sprintf("choice P = %d: ", got)) {
				t.Errorf("%d partitions, want one of %v:\n%s", got, c.want, strings.Join(j.logged, "\n"))
			}
			if trials := len(j.debug); len(j.moves) > 9 || trials < len(j.moves)-1 || trials > len(j.moves) {
				t.Errorf("rows have moved %d times, and the log has %d trials:\n%s", len(j.moves), trials, strings.Join(j.debug, "\n"))
			}
			if !j.says("measured over ") { // the search continues after the report
				t.Errorf("there is no report in\n%s", strings.Join(j.logged, "\n"))
			}
			for step := range 1000 {
				if j.tuner.Meets(400 + step) {
					t.Errorf("the search goes on after step %d", 400+step)
				}
			}
			if again := run(); !slices.EqualFunc(again.moves, j.moves, slices.Equal[[]layout.Piece]) {
				t.Errorf("another run moves rows to %v, this one to %v", again.moves, j.moves)
			}
		})
	}
}

// The search begins after Config.TuneAfterSteps steps of this run. For each number of
// partitions it ignores two steps, then measures as many as take half a
// second, from 10 to 40.
func TestStepsOfMeetings(t *testing.T) {
	const before = 1000
	for took, want := range map[time.Duration]int{time.Second: 10, 50 * time.Millisecond: 10, 25 * time.Millisecond: 20, time.Millisecond: 40, 0: 40} {
		c := Config{Declaration: declare(t, 4, table("words", 1000, 8)), Least: []int{1}, TuneAfterSteps: 3, Search: true, Steps: before}
		j := start(t, c)
		var met []int
		for step := before; len(met) < 3 && step < before+200; step++ {
			if j.tuner.Meets(step) {
				met = append(met, step)
			}
			if err := j.train(step-1, step, func(int) time.Duration { return took }, nil); err != nil {
				t.Fatal(err)
			}
		}
		if first := before + 3; len(met) != 3 || met[0] != first || met[1] != first+2+want || met[2] != met[1]+2+want {
			t.Errorf("steps of %v: meetings after %v, want the first after %d and then every %d steps", took, met, first, 2+want)
		}
	}
}

// The search skips a number of partitions for which a holder lacks memory. If
// it skips all, rows do not move and training continues. Any other error ends
// the training.
func TestPartitionsWithoutMemoryAreSkipped(t *testing.T) {
	none := &transition.RoomError{Holder: cluster.Task{Role: cluster.PS, Index: 2}, Need: 3 << 20, Free: 1 << 20}
	begin := func(room func(parts int) error) *job {
		j := start(t, Config{Declaration: declare(t, 4, table("words", 1000, 8)), Least: []int{1}, TuneAfterSteps: 3, Search: true})
		j.room = func(pieces []layout.Piece) error { return room(len(pieces)) }
		return j
	}
	faster := func(j *job) error { // with more partitions
		return j.train(0, 400, func(int) time.Duration { return time.Second / time.Duration(j.parts("words")) }, nil)
	}
	j := begin(func(parts int) error {
		if parts > 9 {
			return none
		}
		return nil
	})
	if err := faster(j); err != nil || j.parts("words") != 8 || !j.says("left out: "+none.Error()[:20]) {
		t.Errorf("%v, %d partitions, want 8:\n%s", err, j.parts("words"), strings.Join(j.logged, "\n"))
	}
	j = begin(func(int) error { return none })
	if err := faster(j); err != nil || len(j.moves) > 0 {
		t.Errorf("%v, rows moved to %v", err, j.moves)
	}
	lost := errors.New("ps:2 is lost")
	j = begin(func(int) error { return lost })
	if err := faster(j); !errors.Is(err, lost) || !strings.Contains(err.Error(), "meeting after step 3") {
		t.Errorf("%v, want that ps:2 is lost", err)
	}
	j = begin(func(int) error { return nil })
	j.lost = lost // while rows move
	if err := faster(j); !errors.Is(err, lost) {
		t.Errorf("%v, want that ps:2 is lost", err)
	}
	// A number of partitions that the user has set may also need too much
	// memory.
	j = start(t, Config{Declaration: declare(t, 4, table("words", 1000, 8)), Least: []int{1}, TuneAfterSteps: 3, Partitions: 7})
	j.room = func([]layout.Piece) error { return none }
	if err := j.train(0, 50, steady, nil); err != nil || len(j.moves) > 0 || !j.says("rows stay where they are: ps:2 has no room") {
		t.Errorf("%v, rows moved to %v:\n%s", err, j.moves, strings.Join(j.logged, "\n"))
	}
}

// If training ends before the search, the log has the results measured so far.
func TestUnfinishedSearchIsLogged(t *testing.T) {
	j := start(t, Config{Declaration: declare(t, 4, table("words", 1000, 8)), Least: []int{1}, TuneAfterSteps: 3, Search: true})
	if err := j.train(0, 60, steady, nil); err != nil {
		t.Fatal(err)
	}
	if j.tuner.Close(); !j.says("training ended before the search for partitions did") || !j.says("P = 4") {
		t.Errorf("said\n%s", strings.Join(j.logged, "\n"))
	}
}

// New returns nil if workers are not synchronous or the job has only one task.
// A nil Tuner does nothing.
func TestNewReturnsNilIfNothingCanBeTuned(t *testing.T) {
	c := Config{Declaration: declare(t, 2, table("words", 10, 2)), Least: []int{1}, TuneAfterSteps: 1, Cluster: cost.Cluster{Workers: []string{"a"}, Servers: []string{"b", "c"}}}
	if New(c) == nil {
		t.Error("no tuner for a job with servers")
	}
	alone := c
	alone.Cluster = cost.Cluster{Workers: []string{"a"}}
	apart := c
	var err error
	if apart.Declaration.Sync, err = policy.ParseSync("async"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Config{"one task": alone, "async": apart} {
		tuner := New(c)
		if tuner != nil {
			t.Errorf("%s: there is a tuner", name)
		}
		tuner.Pulled(0, []int64{1})
		tuner.Gradient(2, 0, nil)
		if moved, err := tuner.After(t.Context(), 1, time.Second); moved != nil || err != nil || tuner.Meets(1) {
			t.Errorf("%s: rows moved to %v, %v", name, moved, err)
		}
		tuner.Close()
	}
}
