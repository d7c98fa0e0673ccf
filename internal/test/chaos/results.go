package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/test/measured"
)

// Results are all samples.
type Results struct {
	Machine    measured.Machine `json:"machine"`
	References []Reference      `json:"references"`
	Samples    []Sample         `json:"samples"`
}

// Reference is a run without a fault.
type Reference struct {
	Arch    string  `json:"arch"`
	Digest  string  `json:"digest"`  // of all weights at the end
	Seconds float64 `json:"seconds"` // duration of the run
}

// Sample is what became of one cell.
type Sample struct {
	Cell    string  `json:"cell"`    // name, such as ps/worker/kill
	Outcome outcome `json:"outcome"` // what the promise says
	Began   string  `json:"began"`   // when the cell began, in UTC, as in RFC 3339
	Commit  string  `json:"commit"`  // of the tree that was tried
	Seed    uint64  `json:"seed"`    // from --seed; Target follows from it
	Target  int     `json:"target"`  // the step after which the fault was to come
	Proof   string  `json:"proof"`   // how the test saw that the fault took effect, such as "plx was sent SIGKILL"
	measures
	Code   int     `json:"code"`             // plx's exit status
	Ended  float64 `json:"ended"`            // seconds from the fault until the job had ended
	Said   string  `json:"said"`             // the line that names the fault; "": the promise wants none
	Took   float64 `json:"took"`             // seconds that the whole cell took
	Failed string  `json:"failed,omitempty"` // why the cell counts as failed; "": its promise was kept
}

// take notes what was measured of a job, and how long after the fault it had ended.
func (s *Sample) take(m measures, code int, ended time.Duration) {
	s.measures, s.Code, s.Ended = m, code, ended.Seconds()
}

// keep takes a sample in place of an older one of its cell.
func (r *Results) keep(s Sample) {
	if i := slices.IndexFunc(r.Samples, func(old Sample) bool { return old.Cell == s.Cell }); i >= 0 {
		r.Samples[i] = s
		return
	}
	r.Samples = append(r.Samples, s)
}

// write puts the table into the document.
func (r *Results) write(s *settings) error {
	return measured.Insert(filepath.Join(s.out, "reliability.md"), "Reliability", "grid", r.markdown())
}

// failures is an error that names the cells that have broken their promise.
func (r *Results) failures() error {
	var all []error
	for _, s := range r.Samples {
		if s.Failed != "" {
			all = append(all, fmt.Errorf("%s: %s", s.Cell, s.Failed))
		}
	}
	return errors.Join(all...)
}

// summary is one line about a sample.
func (s Sample) summary() string {
	if s.Failed != "" {
		return fmt.Sprintf("%s: FAILED: %s", s.Cell, s.Failed)
	}
	return fmt.Sprintf("%s: %s, noticed after %s, back or ended after %s, %d steps recomputed; %s", s.Cell, s.Outcome, spread(s.Noticed), spread(s.took()), s.Redone, s.Proof)
}

// took is the time until training went on, or until the job had ended.
func (s Sample) took() float64 {
	if s.Outcome == ends {
		return s.Ended
	}
	return s.Back
}

// markdown is a table for a reader: a row for each victim and fault, the
// architectures put together, and so the modes.
func (r *Results) markdown() string {
	var b strings.Builder
	m := r.Machine
	var seconds []float64
	for _, ref := range r.References {
		seconds = append(seconds, ref.Seconds)
	}
	fmt.Fprintf(&b, "\n| | |\n|---|---|\n")
	for _, row := range [][2]string{
		{"date, commit", m.Date + ", " + m.Commit},
		{"machine", fmt.Sprintf("%s, %d cores, %s, load before %s", m.Processor, m.Cores, m.Memory, m.Load)},
		{"system", fmt.Sprintf("%s, %s, %s", m.System, m.Kernel, m.Go)},
		{"command", "`" + m.Command + "`"},
		{"without a fault", fmt.Sprintf("%d steps, a checkpoint every %d, in %s; the same weights in every architecture", steps, checkpointEvery, spread(seconds...))},
		{"cells", fmt.Sprintf("%d tried of %d", len(r.Samples), len(grid()))},
	} {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], row[1])
	}
	fmt.Fprintf(&b, "\n| workers | victim | fault | what happens | noticed after | training again, or ended, after | steps recomputed | kept |\n|---|---|---|---|---|---|---|---|\n")
	for _, in := range []struct {
		title string
		archs []string
	}{{"in step", architectures}, {fmt.Sprintf("async, ssp:%d, backup:%d", bound, spares), modes}} {
		for _, p := range people {
			for _, f := range faults {
				if of := r.of(p.victim, f.fault, in.archs); len(of) > 0 {
					fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", in.title, p.title, f.title, together(of))
				}
			}
		}
	}
	for _, s := range r.Samples {
		if s.Failed != "" {
			fmt.Fprintf(&b, "\n- broken: %s, which %s: %s\n", s.Cell, s.Outcome, strings.Join(strings.Fields(s.Failed), " "))
		}
	}
	return b.String()
}

// of are the samples of a victim and a fault in some architectures or modes.
func (r *Results) of(v victim, f fault, archs []string) (of []Sample) {
	for _, s := range r.Samples {
		if slices.ContainsFunc(archs, func(a string) bool { return s.Cell == Cell{a, v, f}.Name() }) {
			of = append(of, s)
		}
	}
	return of
}

// together puts samples into the last columns of a row. Those that failed are only
// counted.
func together(of []Sample) string {
	kept := slices.DeleteFunc(slices.Clone(of), func(s Sample) bool { return s.Failed != "" })
	var noticed, took []float64
	var redone []int
	for _, s := range kept {
		noticed, took, redone = append(noticed, s.Noticed), append(took, s.took()), append(redone, s.Redone)
	}
	again := "-"
	if len(kept) > 0 {
		again = fmt.Sprintf("%d to %d", slices.Min(redone), slices.Max(redone))
	}
	verdict := fmt.Sprintf("%d of %d", len(kept), len(of))
	if len(kept) < len(of) {
		verdict = "**" + verdict + "**"
	}
	return strings.Join([]string{string(of[0].Outcome), spread(noticed...), spread(took...), again, verdict}, " | ")
}

// spread is the least and the most of the times that are known.
func spread(seconds ...float64) string {
	seconds = slices.DeleteFunc(seconds, func(x float64) bool { return x < 0 })
	if len(seconds) == 0 {
		return "-"
	}
	least, most := fmt.Sprintf("%.1f", slices.Min(seconds)), fmt.Sprintf("%.1f", slices.Max(seconds))
	if least == most {
		return least + " s"
	}
	return least + " to " + most + " s"
}
