package chaos

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "put the samples of docs/reliability/grid.json into docs/reliability.md")

// docs/reliability.md shows the samples that the fault grid has kept: of every cell one,
// under the promise that holds today.
func TestPage(t *testing.T) {
	const page = "../../../docs/reliability.md"
	var kept Samples
	text, err := os.ReadFile("../../../docs/reliability/grid.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	for _, c := range Grid() {
		i := slices.IndexFunc(kept.Samples, func(s Sample) bool { return s.Cell == c.Name() })
		if i < 0 || kept.Samples[i].Outcome != c.Promise().Outcome {
			t.Errorf("%s, which %s: no such sample is kept; try it: make fault-grid", c.Name(), c.Promise().Outcome)
		}
	}
	if text, err = os.ReadFile(page); err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- grid: begin -->\n", "<!-- grid: end -->\n"
	before, rest, begins := strings.Cut(string(text), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatal("the lines around the table are not there")
	}
	want := before + begin + kept.markdown() + end + after
	switch {
	case want == string(text):
	case *update:
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Error(page, " shows other samples than those that are kept: go test ./internal/test/chaos -run TestPage -update")
	}
}

// markdown is a table for a reader: a row for each victim and fault, the
// architectures put together, and so the modes.
func (k Samples) markdown() string {
	var b strings.Builder
	grid := Grid()
	var days, commits []string
	for _, s := range k.Samples {
		days, commits = append(days, s.Began[:len("2006-01-02")]), append(commits, s.Commit)
	}
	slices.Sort(commits)
	fmt.Fprintf(&b, "\nThe table has results of %d of the %d cells of the fault grid, which ran between %s and %s at these commits: %s.\n", len(k.Samples), len(grid), slices.Min(days), slices.Max(days), strings.Join(slices.Compact(commits), ", "))
	fmt.Fprintf(&b, "\n| workers | victim | fault | outcome | report by plx | next step, or end | recomputed | as expected |\n|---|---|---|---|---|---|---|---|\n")
	for _, in := range []struct {
		title string
		archs []string
	}{{"`sync`", Architectures}, {fmt.Sprintf("`async`, `ssp:%d`, `backup:%d`", bound, spares), modes}} {
		for _, p := range people {
			for _, f := range faults {
				cells := slices.DeleteFunc(slices.Clone(grid), func(c Cell) bool {
					return c.Victim != p.Victim || c.Fault != f.Fault || !slices.Contains(in.archs, c.Arch)
				})
				if len(cells) > 0 {
					fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", in.title, p.title, f.title, k.together(cells))
				}
			}
		}
	}
	return b.String()
}

// together puts the samples of cells into the last columns of a row.
func (k Samples) together(cells []Cell) string {
	var noticed, took []float64
	var redone []int
	for _, s := range k.Samples {
		if !slices.ContainsFunc(cells, func(c Cell) bool { return c.Name() == s.Cell }) {
			continue
		}
		back := s.Back // seconds until training went on
		if s.Outcome == Ends {
			back = s.Ended
		}
		noticed, took, redone = append(noticed, s.Noticed), append(took, back), append(redone, s.Redone)
	}
	outcome := cells[0].Promise().Outcome
	report, next, again := "no report", "next step", "none tried"
	if first := spread(noticed); first != "" {
		report = "report after " + first
	}
	if outcome == Ends {
		next = "job ended"
	}
	if len(redone) > 0 {
		again = interval(fmt.Sprint(slices.Min(redone)), fmt.Sprint(slices.Max(redone))) + " steps recomputed"
	}
	kept := fmt.Sprintf("%d of %d cells", len(redone), len(cells))
	return strings.Join([]string{outcomes[outcome], report, next + " after " + spread(took), again, kept}, " | ")
}

// outcomes describes the outcomes to a reader of the table.
var outcomes = map[Outcome]string{
	Recovers: "the job recovers: it restarts from a checkpoint",
	GoesOn:   "the job goes on without a restart",
	Either:   "the job recovers or goes on",
	Ends:     "the job ends with an error",
}

// spread returns the shortest and the longest of the known times, or "" if none
// is known. A time below zero is unknown.
func spread(seconds []float64) string {
	seconds = slices.DeleteFunc(seconds, func(x float64) bool { return x < 0 })
	if len(seconds) == 0 {
		return ""
	}
	return interval(fmt.Sprintf("%.1f", slices.Min(seconds)), fmt.Sprintf("%.1f", slices.Max(seconds))) + " s"
}

// interval returns "least to most", or a single number if the two are equal.
func interval(least, most string) string {
	if least == most {
		return least
	}
	return least + " to " + most
}
