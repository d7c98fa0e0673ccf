package trainer

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/config"
)

// alternating supplies feeds and records the order of calls: 10+s for the feed
// of step s, 20+s for the result of step s.
type alternating struct {
	r     *Session
	order []int
	fails int // step without a feed
}

func newAlternating(t *testing.T, settings ...Setting) *alternating {
	t.Helper()
	r, err := soloJob(io.Discard, settings...).Parallelize(t.Context(), regression{}.build, SGD(0.1), GlobalBatch(6))
	if err != nil {
		t.Fatal(err)
	}
	return &alternating{r: r, fails: -1}
}

var errNoFeed = errors.New("no feed")

func (a *alternating) feed(step int) (Feed, error) {
	if step == a.fails {
		return nil, errNoFeed
	}
	a.order = append(a.order, 10+step)
	return regression{}.feed(step, 0, 6), nil
}

// train trains until a step fails or step stop is done. It compares the losses
// with those of the reference loop twin.
func (a *alternating) train(t *testing.T, twin *regression, steps, stop int) error {
	t.Helper()
	for result, err := range a.r.Train(t.Context(), steps, a.feed) {
		if err != nil {
			return err
		}
		a.order = append(a.order, 20+result.Step)
		done := twin.look(twin.rows(result.Step, 0, 6))
		twin.apply(done, 0.1, 0)
		if !near(result.Loss, done.loss) {
			t.Errorf("step %d: loss %v, the twin has %v", result.Step, result.Loss, done.loss)
		}
		if result.Step == stop {
			break
		}
	}
	return nil
}

// Train must request the feed of each step once, and before it takes the step
// before. After a break, a second loop must continue at the next step.
func TestTrainRequestsFeedsOneStepAhead(t *testing.T) {
	a, twin := newAlternating(t), &regression{}
	for _, c := range []struct {
		steps, stop int
		want        []int
	}{
		{0, -1, nil},
		{3, -1, []int{10, 11, 20, 12, 21, 22}},
		{3, -1, nil},
		{9, 4, []int{13, 14, 23, 15, 24}},
		{6, -1, []int{15, 25}},
	} {
		a.order = nil
		if err := a.train(t, twin, c.steps, c.stop); err != nil || !slices.Equal(a.order, c.want) {
			t.Errorf("until %d: %v, %v, want %v", c.steps, a.order, err, c.want)
		}
	}
}

// The sequence of Train must end after the first error, whether from feed or
// from Step.
func TestTrainEndsAfterAnError(t *testing.T) {
	a, twin := newAlternating(t), &regression{}
	for _, fails := range []int{0, 1, 1, 4} {
		a.fails = fails
		if err := a.train(t, twin, 9, -1); err != errNoFeed || a.r.Steps() != fails {
			t.Errorf("no feed for step %d: %v after %d steps", fails, err, a.r.Steps())
		}
	}
	stopped := newAlternating(t, flags(func(c *config.Config) { c.StopAtStep = 4 }))
	if err := stopped.train(t, &regression{}, 9, -1); err != nil || stopped.r.Steps() != 4 {
		t.Errorf("%v after %d steps, want the end after 4", err, stopped.r.Steps())
	}
	if _, err := stopped.r.Step(t.Context(), regression{}.feed(4, 0, 6)); err != ErrDone {
		t.Errorf("step 4: %v, want ErrDone", err)
	}
	if _, err := stopped.r.Evaluate(t.Context(), regression{}.feed(4, 0, 6)); err != nil {
		t.Errorf("what stands after the loop: %v", err)
	}
}

// Train must prefetch the rows of the next step in each step. A feed with
// invalid indices must fail only in its own step.
func TestTrainPrefetches(t *testing.T) {
	x := everything()["embedding, duplicates"]
	r, err := soloJob(io.Discard).Parallelize(t.Context(), x.build(1), x.opt, x.options...)
	if err != nil {
		t.Fatal(err)
	}
	from, to := r.Rows()
	steps := 0
	for result, err := range r.Train(t.Context(), 4, func(step int) (Feed, error) {
		if step == 3 {
			return Feed{}, nil
		}
		return x.feed(step, from, to), nil
	}) {
		if err != nil {
			if steps != 3 || !strings.Contains(err.Error(), "are not fed") {
				t.Errorf("after %d steps: %v", steps, err)
			}
			break
		}
		steps++
		if known, requested := r.worker.tables.Ahead(); known || requested != (result.Step < 2) {
			t.Errorf("step %d: known %t, requested %t", result.Step, known, requested)
		}
	}
	if err := r.close(nil); err != nil || steps != 3 {
		t.Errorf("%d steps: %v", steps, err)
	}
}
