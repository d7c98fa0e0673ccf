package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/internal/test/measured"
)

// Results are all samples.
type Results struct {
	Parts []Part `json:"parts"`
}

// Part is what one run measured of a subject.
type Part struct {
	Name    string           `json:"name"`
	Machine measured.Machine `json:"machine"`
	Lines   []Line           `json:"lines"`
}

// Line is a row of the table with its samples, one for each round.
type Line struct {
	Name string  `json:"name"`
	Peer string  `json:"peer"`
	Goal float64 `json:"goal"` // the largest figure that is wanted
	// Over: the line's figures are seconds by which plx exceeds the peer. Else they are ratios.
	Over    bool     `json:"over,omitempty"`
	Unit    string   `json:"unit,omitempty"` // of the times in the table; empty: seconds
	Samples []Sample `json:"samples"`
}

// replace puts parts in the place of those that have their names.
func (r *Results) replace(now Results) {
	for _, p := range now.Parts {
		if i := slices.IndexFunc(r.Parts, func(q Part) bool { return q.Name == p.Name }); i >= 0 {
			r.Parts[i] = p
		} else {
			r.Parts = append(r.Parts, p)
		}
	}
}

// check returns an error that names the lines that are slower than they were, by more
// than the noise: their median is above the recorded one by more than the wider of both
// ranges of ratios.
func (r *Results) check(now Results) error {
	var worse []string
	for _, p := range now.Parts {
		for _, l := range p.Lines {
			old, found := r.line(p.Name, l.Name)
			if !found {
				continue
			}
			was, is := old.figures(), l.figures()
			noise := max(was[len(was)-1]-was[0], is[len(is)-1]-is[0])
			fmt.Printf("%s, %s: %.2f of %s, recorded %.2f, noise %.2f\n", p.Name, l.Name, median(is), l.Peer, median(was), noise)
			if median(is) > median(was)+noise {
				worse = append(worse, p.Name+", "+l.Name)
			}
		}
	}
	if worse != nil {
		return fmt.Errorf("slower than recorded: %s", strings.Join(worse, "; "))
	}
	return nil
}

func (r *Results) line(part, name string) (Line, bool) {
	for _, p := range r.Parts {
		for _, l := range p.Lines {
			if p.Name == part && l.Name == name && len(l.Samples) > 0 {
				return l, true
			}
		}
	}
	return Line{}, false
}

// figures are what counts of all rounds, sorted.
func (l Line) figures() []float64 {
	if l.Over {
		return l.sorted(Sample.more)
	}
	return l.sorted(Sample.ratio)
}

// time is a time of the line, which is in seconds.
func (l Line) time(s float64) string {
	if l.Unit == milliseconds {
		return fmt.Sprintf("%.2f ms", s*1000)
	}
	return fmt.Sprintf("%.2f s", s)
}

// shown is a figure of the line.
func (l Line) shown(v float64) string {
	if l.Over {
		return fmt.Sprintf("%+.2f s", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func (l Line) sorted(of func(Sample) float64) (all []float64) {
	for _, s := range l.Samples {
		all = append(all, of(s))
	}
	slices.Sort(all)
	return all
}

// median of sorted numbers.
func median(all []float64) float64 {
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

// table writes medians of times and figures, and the least and the most figure.
func (r Results) table() string {
	var t strings.Builder
	t.WriteString("| part | | plx | other program | its time | ratio, or more than it | least to most | goal |\n|---|---|---|---|---|---|---|---|\n")
	for _, p := range r.Parts {
		for _, l := range p.Lines {
			all, met := l.figures(), "met"
			if median(all) > l.Goal {
				met = "**not met**"
			}
			own := l.time(median(l.sorted(func(s Sample) float64 { return s.Plx - s.Beyond })))
			if whole := median(l.sorted(func(s Sample) float64 { return s.Plx })); l.Samples[0].Beyond > 0 {
				own += " (" + l.time(whole) + " with the launch)"
			}
			fmt.Fprintf(&t, "| %s | %s | %s | %s | %s | %s | %s to %s | %s, %s |\n", p.Name, l.Name, own, l.Peer,
				l.time(median(l.sorted(func(s Sample) float64 { return s.Peer }))), l.shown(median(all)), l.shown(all[0]), l.shown(all[len(all)-1]), l.shown(l.Goal), met)
		}
	}
	t.WriteString("\n| part | date, commit | machine | rounds |\n|---|---|---|---|\n")
	for _, p := range r.Parts {
		m := p.Machine
		fmt.Fprintf(&t, "| %s | %s, %s | %s, %d cores, load before %s; %s, %s, %s | %d |\n", p.Name, m.Date, m.Commit, m.Processor, m.Cores, m.Load,
			m.System, m.Kernel, m.Go, len(p.Lines[0].Samples))
	}
	return t.String()
}
