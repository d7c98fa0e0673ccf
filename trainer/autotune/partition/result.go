package partition

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Result is the outcome of the search for P, the best number of pieces of an
// embedding table. The search may be unfinished.
type Result struct {
	P       int      // the best number of pieces into which the table is cut; 0 means that nothing was measured
	Why     string   // the reason for the choice of P, for the log
	Samples []Sample // every number of pieces that was measured or skipped, ascending by number
	Fit     *Fit     // the curve through the samples; nil if no curve fits, for the reason in NoFit
	NoFit   string   // why Fit is nil; "" if Fit is set
}

// Result returns the best number of pieces of an embedding table so far, with
// all measurements and the curve through them.
func (s *Search) Result() Result {
	samples := s.measured()
	r := Result{Samples: slices.Clone(samples)}
	for p, why := range s.skipped {
		r.Samples = append(r.Samples, Sample{P: p, Skipped: why})
	}
	slices.SortFunc(r.Samples, byP)
	r.Fit, r.NoFit = fit(samples)
	if len(samples) == 0 {
		r.Why = "none of them could be measured"
		return r
	}
	best := choose(samples)
	r.P, r.Why = best.P, reason(samples, best)
	return r
}

func reason(samples []Sample, best Sample) string {
	fastest := slices.MinFunc(samples, func(a, b Sample) int { return cmp.Compare(a.Median, b.Median) })
	switch {
	case len(samples) == 1:
		return "the only one that was measured"
	case equal(samples):
		return "the smallest, as all times are equal within their spread"
	case fastest.Median < best.Median:
		return fmt.Sprintf("the smallest that is as fast as %d within the spread", fastest.P)
	}
	return fmt.Sprintf("the fastest of %d", len(samples))
}

// Lines formats the result for a log: the samples, the fit and the choice.
// Each line has at most 140 characters.
func (r Result) Lines() (lines []string) {
	residual, worst := 0, 0.0
	for _, s := range r.Samples {
		if s.Skipped != "" {
			lines = append(lines, fmt.Sprintf("P %6d: left out: %s", s.P, s.Skipped))
			continue
		}
		line := fmt.Sprintf("P %6d: %9s ± %s in %d steps", s.P, digits(s.Median), digits(s.Spread), s.Steps)
		if r.Fit != nil {
			part := r.Fit.Residuals[residual] / s.Median.Seconds()
			worst = max(worst, math.Abs(part))
			line += fmt.Sprintf("; fit %s, off by %+.1f %%", seconds(r.Fit.At(float64(s.P))), 100*part)
			residual++
		}
		lines = append(lines, line)
	}
	if f := r.Fit; f != nil {
		lines = append(lines, fmt.Sprintf("fit t(P) = %s + %s/P + %s*P: lowest at P = %.1f, off by at most %.1f %%",
			seconds(f.C), seconds(f.B), seconds(f.A), f.Best(), 100*worst))
	} else {
		lines = append(lines, "no fit: "+r.NoFit)
	}
	lines = append(lines, fmt.Sprintf("choice P = %d: %s", r.P, r.Why))
	for i, line := range lines {
		lines[i] = shorten(strings.Map(printable, line), 140)
	}
	return lines
}

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return ' '
}

func shorten(line string, most int) string {
	if letters := []rune(line); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return line
}

// digits formats a duration with about four significant digits.
func digits(d time.Duration) string {
	to := time.Duration(1)
	for to < d/10_000 {
		to *= 10
	}
	return d.Round(to).String()
}

// seconds formats a number of seconds. It does not round values below a
// microsecond to nanoseconds, because coefficients of a fit may be that small.
func seconds(s float64) string {
	if s > 0 && s < 1e-6 || s > 1e9 {
		return fmt.Sprintf("%.3gs", s)
	}
	return digits(time.Duration(s * 1e9))
}
