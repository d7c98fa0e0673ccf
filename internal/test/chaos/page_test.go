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

// docs/reliability.md must show the recorded results of the fault grid: one
// sample of every cell, judged by the current promises.
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

// markdown returns a table with a row for each victim and fault. All
// architectures share a row, and all asynchronous modes share another.
func (k Samples) markdown() string {
	var b strings.Builder
	grid := Grid()
	var days, commits []string
	for _, s := range k.Samples {
		days, commits = append(days, s.Began[:len("2006-01-02")]), append(commits, s.Commit)
	}
	slices.Sort(commits)
	fmt.Fprintf(&b, "\n%d of %d cells, tried between %s and %s at commit %s.\n", len(k.Samples), len(grid), slices.Min(days), slices.Max(days), strings.Join(slices.Compact(commits), ", "))
	fmt.Fprintf(&b, "\n| workers | victim | fault | what happens | noticed after | training again, or ended, after | steps recomputed | kept |\n|---|---|---|---|---|---|---|---|\n")
	for _, in := range []struct {
		title string
		archs []string
	}{{"in step", Architectures}, {fmt.Sprintf("async, ssp:%d, backup:%d", bound, spares), modes}} {
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

// together summarizes the samples of some cells in the last columns of a row.
func (k Samples) together(cells []Cell) string {
	var noticed, took []float64
	var redone []int
	for _, s := range k.Samples {
		if !slices.ContainsFunc(cells, func(c Cell) bool { return c.Name() == s.Cell }) {
			continue
		}
		back := s.Back // seconds until training continued
		if s.Outcome == Ends {
			back = s.Ended
		}
		noticed, took, redone = append(noticed, s.Noticed), append(took, back), append(redone, s.Redone)
	}
	again := "-"
	if len(redone) > 0 {
		again = fmt.Sprintf("%d to %d", slices.Min(redone), slices.Max(redone))
	}
	kept := fmt.Sprintf("%d of %d", len(redone), len(cells))
	return strings.Join([]string{string(cells[0].Promise().Outcome), spread(noticed), spread(took), again, kept}, " | ")
}

// spread formats the smallest and the largest of the known times.
func spread(seconds []float64) string {
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
