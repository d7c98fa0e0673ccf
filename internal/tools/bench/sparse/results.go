package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/plx-run/plx/internal/test/measured"
)

// Results are all samples, and what is needed to read them.
type Results struct {
	Mode    string        `json:"mode"`
	Machine Machine       `json:"machine"`
	Model   modelSettings `json:"model"`
	Rows    Rows          `json:"rows"`
	Raw     []Raw         `json:"raw"`
	LeftOut []string      `json:"leftOut,omitempty"` // flags that the programs do not have
	Runs    []Run         `json:"runs"`
}

// write makes the document's part and the plots, and prints the part.
func (r *Results) write(s *settings, w io.Writer) error {
	part := r.markdown()
	if _, err := io.WriteString(w, part); err != nil {
		return err
	}
	return errors.Join(measured.Insert(filepath.Join(s.out, "benchmarks.md"), "Benchmarks", r.Mode, part), r.plots(filepath.Join(s.out, "benchmarks")))
}

// failures is an error that names the runs that failed.
func (r *Results) failures() error {
	var all []error
	for _, run := range r.Runs {
		if run.Failed != "" {
			all = append(all, fmt.Errorf("%s on %s at %s, round %d: %s", run.System, counted(run.Hosts), run.Rate, run.Round, run.Failed))
		}
	}
	return errors.Join(all...)
}

// cell is all rounds of one system on so many hosts at one rate.
type cell struct {
	runs   int
	failed int
	words  []float64 // per second, ascending
	millis float64   // medians over the rounds
	cores  float64
	link   float64
	choice []int
	homes  homes // of any run
}

// cell gathers it; runs that failed are counted and otherwise left out.
func (r *Results) cell(system string, hosts int, rate string) cell {
	var c cell
	var millis, cores, link []float64
	for _, run := range r.Runs {
		if run.System != system || run.Hosts != hosts || run.Rate != rate {
			continue
		}
		if c.runs++; run.Failed != "" {
			c.failed++
			continue
		}
		c.words, millis = append(c.words, run.Words), append(millis, run.StepMillis())
		cores, link = append(cores, run.Cores), append(link, run.Link)
		c.homes = run.Homes
		if run.Choice > 0 {
			c.choice = append(c.choice, run.Choice)
		}
	}
	slices.Sort(c.words)
	c.millis, c.cores, c.link = median(millis), median(cores), median(link)
	return c
}

// measured says whether there is a number.
func (c cell) measured() bool { return len(c.words) > 0 }

// median of none is 0.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// hosts, rates and systems in the order in which they were first measured.
func (r *Results) hosts() []int {
	return distinct(r.Runs, func(x Run) int { return x.Hosts })
}

func (r *Results) rates() []string {
	return distinct(r.Runs, func(x Run) string { return x.Rate })
}

func (r *Results) keys() []string {
	return distinct(r.Runs, func(x Run) string { return x.System })
}

func distinct[T comparable](runs []Run, of func(Run) T) (all []T) {
	for _, run := range runs {
		if x := of(run); !slices.Contains(all, x) {
			all = append(all, x)
		}
	}
	return all
}

// raw is what TCP carried at a rate.
func (r *Results) raw(rate string) Raw {
	for _, raw := range r.Raw {
		if raw.Rate == rate {
			return raw
		}
	}
	return Raw{Rate: rate}
}

// verdict is a system's step against what its formula allows.
type verdict struct {
	demand  demand
	link    float64 // minimum fraction of the measured step for which the link is busy; 0 as for formula
	formula float64 // step time that the formula allows, divided by the measured one; 0: one host, or no measurement
}

// fair is what a baseline must reach of its formula for a ratio over it to
// count.
const fair = 0.8

func (v verdict) void() bool { return v.formula > 0 && v.formula < fair }

// judge needs the system's run on one host for the time of computing; without
// one computing counts as nothing.
func (r *Results) judge(x system, hosts int, rate string) verdict {
	c, alone := r.cell(x.key, hosts, rate), r.cell(x.key, 1, rate)
	if hosts < 2 || !c.measured() {
		return verdict{}
	}
	step := c.millis / 1000
	compute := 0.0
	if alone.measured() {
		compute = computing(alone.millis/1000, alone.cores, hosts, r.Machine.Cores)
	}
	d := x.formula(r.Model, r.Rows, float64(hosts), c.homes)
	link, allowed := d.allowed(r.raw(rate).Net, compute)
	return verdict{demand: d, link: link / step, formula: allowed / step}
}
