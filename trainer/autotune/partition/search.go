// Package partition decides how the rows of a table are cut and which shard
// holder gets which piece: it cuts so that every piece travels about as often,
// and finds by measuring how many pieces are best.
//
//	h := partition.NewHistogram(100_000)
//	h.Add(rows)                                  // every step: rows that travelled
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
// It goes the way of Parallax (Kim et al., EuroSys'19, the section on
// partitioning): double from the start while steps get faster, then halve from
// the start, then fit t(P) = c + b/P + a*P, whose minimum is at sqrt(b/a). A
// time is the median of the steps; differences within the uncertainty of the
// medians, and of at most 5 %, are ties, and a tie goes to the smaller P. If the
// fit promises a shorter time than the samples have, the search measures its
// minimum too. It chooses nothing that it did not measure.
//
// # What it refuses
//
// It moves no rows and measures no time: its caller does. It knows counts by bucket
// and not by row: a row that travels more often than a piece should stays in one
// piece.
package partition

import (
	"math"
	"slices"
	"time"
)

// Search finds how many pieces are best by asking for the times of some. It
// is used by one goroutine.
type Search struct {
	start, least, most int
	phase              phase
	at                 int                     // the P that this phase took up last
	asked              int                     // the P that Next returns until Add or Skip answers; 0 means none
	steps              map[int][]time.Duration // by P: times of the measured steps
	skipped            map[int]string          // by P: why it was not measured
}

type phase int

const (
	begin phase = iota
	doubling
	halving
	fitting
	ended
)

// NewSearch returns a search in [least, most] that begins at start, which is
// brought into that range. least is at least 1; where most is below it, least
// alone is tried.
func NewSearch(start, least, most int) *Search {
	least = max(least, 1)
	most = max(least, most)
	return &Search{
		start: min(max(start, least), most), least: least, most: most,
		steps: map[int][]time.Duration{}, skipped: map[int]string{},
	}
}

// Next returns the P to measure next, the same until it was added or skipped,
// or no more.
func (s *Search) Next() (p int, more bool) {
	for s.asked == 0 && s.phase != ended {
		s.advance()
	}
	return s.asked, s.asked != 0
}

// Add tells what steps took at p. Steps of no time are not counted; without
// any, p is skipped. More steps at the same p join the earlier ones.
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

// Skip leaves p out; why is the reason, such as that it does not fit in
// memory.
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

// known reports whether there is an answer for p.
func (s *Search) known(p int) bool {
	_, skipped := s.skipped[p]
	return skipped || len(s.steps[p]) > 0
}

// advance asks for the next P of the phase, or goes to the next phase.
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
		if p := s.further(); p > 0 {
			s.ask(p)
		}
	}
}

// ask takes up p in this phase, and waits for it unless it is known.
func (s *Search) ask(p int) {
	s.at = p
	if !s.known(p) {
		s.asked = p
	}
}

// promising reports whether the last P was the best so far, so that it is
// worth going on; as long as none fits, it is.
func (s *Search) promising() bool {
	samples := s.measured()
	if len(samples) == 0 {
		return true
	}
	return choose(samples).P == s.at
}

// further is the minimum of the fit if it promises more than 1 % over the best
// sample, else 0. It stays near the samples: elsewhere the curve is a guess.
func (s *Search) further() int {
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

// whole is the best whole P of a fit.
func whole(f *Fit) int {
	below := math.Floor(min(max(f.Best(), 1), 1e15))
	if f.At(below) <= f.At(below+1) {
		return int(below)
	}
	return int(below) + 1
}

// measured returns the samples that have a time, by P.
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

// choose returns the first of the samples, which ascend, that is as fast as
// the fastest.
func choose(samples []Sample) Sample {
	fastest := samples[0]
	for _, s := range samples {
		if s.Median < fastest.Median {
			fastest = s
		}
	}
	return samples[slices.IndexFunc(samples, func(s Sample) bool { return tie(s, fastest) })]
}
