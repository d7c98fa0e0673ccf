package trainer

import (
	"math"
	"testing"
)

func TestSchedules(t *testing.T) {
	root := math.Sqrt2 / 2
	for _, c := range []struct {
		name string
		rate func(int) float64
		want map[int]float64
	}{
		{"linear", Linear(0.1, 0.03, 1000),
			map[int]float64{-5: 0.1, 0: 0.1, 1: 0.1 - 0.00007, 500: 0.065, 999: 0.03007, 1000: 0.03, 1 << 40: 0.03}},
		{"linear up", Linear(0, 2, 4), map[int]float64{0: 0, 1: 0.5, 2: 1, 3: 1.5, 4: 2, 5: 2}},
		{"linear, no steps", Linear(1, 2, 0), map[int]float64{-1: 2, 0: 2, 1: 2}},
		{"linear, negative steps", Linear(1, 2, -3), map[int]float64{-4: 2, -3: 2, 0: 2}},
		{"step", StepDecay(0.4, 0.5, 10),
			map[int]float64{-11: 0.4, -1: 0.4, 0: 0.4, 9: 0.4, 10: 0.2, 19: 0.2, 20: 0.1, 30: 0.05, 79: 0.4 / 128, 1 << 40: 0}},
		{"step, every one", StepDecay(1, 0.1, 1), map[int]float64{0: 1, 1: 0.1, 2: 0.01, 7: 1e-7}},
		{"step, never", StepDecay(0.4, 0.5, 0), map[int]float64{-1: 0.4, 0: 0.4, 1000: 0.4}},
		{"cosine", Cosine(1, 0, 8),
			map[int]float64{-3: 1, 0: 1, 2: (1 + root) / 2, 4: 0.5, 6: (1 - root) / 2, 8: 0, 9: 0, 1 << 40: 0}},
		{"cosine between", Cosine(0.5, 0.1, 2), map[int]float64{0: 0.5, 1: 0.3, 2: 0.1, 3: 0.1}},
		{"cosine, no steps", Cosine(1, 0.25, 0), map[int]float64{-1: 0.25, 0: 0.25}},
		{"warm-up", WarmUp(4, Linear(1, 0, 10)),
			map[int]float64{-1: 0.2, 0: 0.2, 1: 0.4, 2: 0.6, 3: 0.8, 4: 1, 5: 0.9, 13: 0.1, 14: 0, 20: 0}},
		{"no warm-up", WarmUp(0, Linear(1, 0, 10)), map[int]float64{-1: 1, 0: 1, 5: 0.5}},
		{"negative warm-up", WarmUp(-7, Linear(1, 0, 10)), map[int]float64{-1: 1, 0: 1, 5: 0.5}},
		{"warm-up twice", WarmUp(1, WarmUp(1, StepDecay(8, 0.5, 1))), map[int]float64{0: 2, 1: 4, 2: 8, 3: 4}},
	} {
		for step, want := range c.want {
			if got := c.rate(step); !(math.Abs(got-want) <= 1e-15) {
				t.Errorf("%s: step %d: %v, want %v", c.name, step, got, want)
			}
		}
	}
}

// A schedule must begin and end with exactly the given rates, without rounding
// errors.
func TestScheduleEndsAreExact(t *testing.T) {
	for _, c := range []struct{ from, to float64 }{{0.1, 0.03}, {0.7, 0.1}, {1e-9, 3}, {0.3, 0}} {
		for name, rate := range map[string]func(int) float64{"linear": Linear(c.from, c.to, 7), "cosine": Cosine(c.from, c.to, 7)} {
			for _, end := range []struct {
				step int
				want float64
			}{{-1, c.from}, {7, c.to}, {8, c.to}} {
				if got := rate(end.step); got != end.want {
					t.Errorf("%s from %v to %v: step %d: %v", name, c.from, c.to, end.step, got)
				}
			}
		}
	}
	if got, want := WarmUp(3, Linear(0.1, 0.03, 7))(3), 0.1; got != want {
		t.Errorf("after the warm-up: %v, want %v", got, want)
	}
}

// A schedule must fall or rise monotonically, and never leave the range
// between its two rates.
func TestSchedulesAreMonotone(t *testing.T) {
	for name, rate := range map[string]func(int) float64{
		"linear": Linear(0.3, 0.01, 333), "cosine": Cosine(0.3, 0.01, 333), "step": StepDecay(0.3, 0.9, 11),
	} {
		for step := range 400 {
			if a, b := rate(step), rate(step+1); b > a || b < 0 || a > 0.3 {
				t.Errorf("%s: %v at step %d, then %v", name, a, step, b)
			}
		}
	}
}
