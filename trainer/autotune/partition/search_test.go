package partition

import (
	"math"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/random"
)

// truth is the curve of true step times, c + b/P + a*P, in seconds.
type truth struct{ a, b, c float64 }

func (t truth) at(p int) float64 { return t.c + t.b/float64(p) + t.a*float64(p) }

// best tries all.
func (t truth) best(least, most int) float64 {
	best := math.Inf(1)
	for p := least; p <= most; p++ {
		best = min(best, t.at(p))
	}
	return best
}

// drawTruth returns a random curve. c is from 1 to 100 ms; b and a range from
// almost nothing to most of the step time.
func drawTruth(s random.Stream) truth {
	x, y := s.Pair(0)
	z, _ := s.Pair(1)
	c := 1e-3 * math.Pow(100, x)
	return truth{c: c, b: c * math.Pow(10, -2+4*y), a: c * math.Pow(10, -4+4*z)}
}

// noise returns a random factor for the duration of step i. It is normally
// distributed around 1; one step in twenty takes three times as long.
func noise(s random.Stream, i int, deviation float64) float64 {
	u, v := s.Pair(uint64(2 * i))
	factor := 1 + deviation*math.Sqrt(-2*math.Log(1-u))*math.Cos(2*math.Pi*v)
	if slow, _ := s.Pair(uint64(2*i + 1)); slow < 0.05 {
		factor *= 3
	}
	return max(factor, 0.1)
}

// run lets a search measure noisy times of t, and returns the numbers that it
// has requested.
func run(s *Search, t truth, stream random.Stream, steps int, deviation float64) (asked []int) {
	for p, more := s.Next(); more; p, more = s.Next() {
		asked = append(asked, p)
		var times []time.Duration
		own := stream.Derive(uint64(p))
		for i := range steps {
			times = append(times, time.Duration(1e9*t.at(p)*noise(own, i, deviation)))
		}
		s.Add(p, times)
	}
	return asked
}

// In at least 95 % of the trials, the true time of the chosen P is within 10 %
// of the best.
func TestChoiceIsNearTheBest(t *testing.T) {
	const trials, most = 200, 256
	for _, c := range []struct {
		deviation float64
		steps     int
	}{{0, 5}, {0.02, 10}, {0.05, 10}, {0.1, 20}, {0.2, 40}} {
		good, asked, worst := 0, 0, 1.0
		for i := range uint64(trials) {
			stream := random.New(4, "search").Derive(uint64(c.steps), i)
			truth := drawTruth(stream)
			u, _ := stream.Pair(2)
			s := NewSearch(1<<int(5*u), 1, most)
			asked += len(run(s, truth, stream.Derive(1), c.steps, c.deviation))
			off := truth.at(s.Result().P) / truth.best(1, most)
			if off <= 1.1 {
				good++
			}
			worst = max(worst, off)
		}
		t.Logf("noise %2.0f %%, %d steps: %d of %d within 10 %%, worst %.2f, %.1f samples", 100*c.deviation, c.steps, good, trials, worst, float64(asked)/trials)
		if good < trials*95/100 {
			t.Errorf("noise %2.0f %%, %d steps: only %d of %d within 10 %%", 100*c.deviation, c.steps, good, trials)
		}
	}
}
