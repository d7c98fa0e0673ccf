// Package partition decides into how many pieces the rows of an embedding
// table are cut, where the cuts are, and which shard holder (a task that
// stores variables) gets which piece. All pieces are transferred about equally
// often. The best number of pieces is found by measuring.
//
//	h := partition.NewHistogram(100_000)
//	h.Add(rows)                                  // every step: rows that were transferred
//	bounds := partition.Cut(100_000, 16, 0, h.Counts())
//	holders := partition.Assign(partition.Loads(bounds, h.Counts()), make([]float64, servers))
//
//	s := partition.NewSearch(servers, 1, 256)
//	for p, more := s.Next(); more; p, more = s.Next() {
//		... cut in p pieces, train some steps, take their times ...
//		s.Add(p, times)                      // or s.Skip(p, "ps:1 has no room")
//	}
//	result := s.Result()                         // result.P, result.Lines()
//
// # The search
//
// The search follows Parallax (Kim et al., EuroSys'19, the section on
// partitioning). It doubles the number P of pieces as long as steps get
// faster. Then it goes back to the first P and halves it as long as steps get
// faster. Then it fits the curve t(P) = c + b/P + a*P, whose minimum is at
// sqrt(b/a). If the fit predicts a shorter time at this minimum, the search
// measures that P too.
//
// The time for a P is the median of its steps. Two times tie if they differ by
// at most 5 %, and by no more than the uncertainty of the medians. Of several
// P whose times tie, the smallest wins. The search only chooses a P that was
// measured.
//
// # What it refuses
//
// The caller moves the rows and measures the times. The package has counts for
// buckets of rows, not for single rows. It cannot split a row: a very frequent
// row makes its piece heavier than the others.
package partition

import (
	"math"
	"slices"
	"time"
)

// Search finds the number P of pieces with the fastest steps. It proposes
// numbers, and the caller measures them. Only one goroutine may use it.
type Search struct {
	start, least, most int
	phase              phase
	at                 int                     // number of pieces (P) that the current phase of the search has requested last
	asked              int                     // the number of pieces (P) that Next returns until Add or Skip is called for it; 0 means none
	steps              map[int][]time.Duration // by number of pieces P: durations of the measured steps
	skipped            map[int]string          // by number of pieces P: the reason why P was not measured
}

type phase int

const (
	begin phase = iota
	doubling
	halving
	fitting
	ended
)

// NewSearch returns a search for the best number of pieces in [least, most]
// that begins at start. It raises least to 1, and moves start into the range.
// If most is below least, the search tries only least.
func NewSearch(start, least, most int) *Search {
	least = max(least, 1)
	most = max(least, most)
	return &Search{
		start: min(max(start, least), most), least: least, most: most,
		steps: map[int][]time.Duration{}, skipped: map[int]string{},
	}
}

// Next returns the number of pieces (P) to measure next. It returns the same P
// until the caller has called Add or Skip for that P. more is false at the end
// of the search.
func (s *Search) Next() (p int, more bool) {
	for s.asked == 0 && s.phase != ended {
		s.advance()
	}
	return s.asked, s.asked != 0
}

// Add records durations of steps with p pieces, in addition to earlier ones.
// It ignores durations of 0. If p has no durations after the call, p counts as
// skipped.
func (s *Search) Add(p int, steps []time.Duration) {
	for _, t := range steps {
		if t > 0 {
			s.steps[p] = append(s.steps[p], t)
		}
	}
	if len(s.steps[p]) == 0 {
		s.Skip(p, "no step was measured")
		return
	}
	delete(s.skipped, p)
	s.answered(p)
}

// Skip records that the number p of pieces cannot be measured. why is the
// reason, for example that a shard holder lacks memory.
func (s *Search) Skip(p int, why string) {
	if len(s.steps[p]) == 0 {
		s.skipped[p] = why
	}
	s.answered(p)
}

func (s *Search) answered(p int) {
	if p == s.asked {
		s.asked = 0
	}
}

// known reports whether the number p of pieces has been measured or skipped.
func (s *Search) known(p int) bool {
	_, skipped := s.skipped[p]
	return skipped || len(s.steps[p]) > 0
}

// advance requests the next number of pieces (P) of the current phase, or goes
// to the next phase.
func (s *Search) advance() {
	switch s.phase {
	case begin:
		s.ask(s.start)
		s.phase = doubling
	case doubling:
		if s.at < s.most && s.promising() {
			s.ask(s.at + min(s.at, s.most-s.at))
			return
		}
		s.phase, s.at = halving, s.start
	case halving:
		if s.at > s.least && (s.at == s.start || s.promising()) {
			s.ask(max(s.at/2, s.least))
			return
		}
		s.phase = fitting
	case fitting:
		s.phase = ended
		if p := s.proposeMinimum(); p > 0 {
			s.ask(p)
		}
	}
}

// ask makes p the current number of pieces of this phase. If p has not been
// measured before, Next will return it.
func (s *Search) ask(p int) {
	s.at = p
	if !s.known(p) {
		s.asked = p
	}
}

// promising reports whether the number of pieces that was tried last was the
// fastest so far. The search then continues in the same direction. promising
// is also true if every number so far was skipped.
func (s *Search) promising() bool {
	samples := s.measured()
	if len(samples) == 0 {
		return true
	}
	return choose(samples).P == s.at
}

// proposeMinimum returns the number of pieces (P) with the lowest time that
// the fitted curve predicts. It returns 0 if that time is not at least 1 %
// shorter than the prediction for the best measured P. The result is between
// half the smallest and twice the largest measured P, because the curve is
// unreliable elsewhere.
func (s *Search) proposeMinimum() int {
	samples := s.measured()
	f, _ := fit(samples)
	if f == nil {
		return 0
	}
	low := max(s.least, samples[0].P/2)
	high := samples[len(samples)-1].P
	high += min(high, s.most-high)
	p := min(max(whole(f), low), high)
	best := f.At(float64(choose(samples).P))
	if s.known(p) || f.At(float64(p)) > 0.99*best {
		return 0
	}
	return p
}

// whole returns the whole number of pieces for which the fitted curve predicts
// the lowest time.
func whole(f *Fit) int {
	below := math.Floor(min(max(f.Best(), 1), 1e15))
	if f.At(below) <= f.At(below+1) {
		return int(below)
	}
	return int(below) + 1
}

// measured returns the samples of all numbers of pieces (P) that were
// measured, ascending by P.
func (s *Search) measured() (samples []Sample) {
	for p, steps := range s.steps {
		if len(steps) > 0 {
			samples = append(samples, newSample(p, steps))
		}
	}
	slices.SortFunc(samples, byP)
	return samples
}

func byP(a, b Sample) int { return a.P - b.P }

// choose returns the fastest sample. If the times of several samples tie with
// the fastest, it returns the one with the fewest pieces (P). samples must be
// ascending by P.
func choose(samples []Sample) Sample {
	fastest := samples[0]
	for _, s := range samples {
		if s.Median < fastest.Median {
			fastest = s
		}
	}
	return samples[slices.IndexFunc(samples, func(s Sample) bool { return tie(s, fastest) })]
}
