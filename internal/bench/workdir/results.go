package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/internal/measured"
)

// Results are all samples.
type Results struct {
	Machine measured.Machine `json:"machine"`
	Rsync   string           `json:"rsync"` // its version
	Files   int              `json:"files"`
	Bytes   int64            `json:"bytes"` // of all files
	Counts  []Count          `json:"counts"`
}

// Count is what was measured with a number of hosts.
type Count struct {
	Hosts  int     `json:"hosts"`
	Rounds []Round `json:"rounds"`
}

// Round is one run of each case. Before the first three the hosts have no spare working
// directory. Before the others a job has run until each host had made one.
type Round struct {
	First        Times `json:"first"`        // nothing was ever sent
	Changed      Times `json:"changed"`      // one file has changed
	Same         Times `json:"same"`         // nothing has changed
	ChangedSpare Times `json:"changedSpare"` // one file has changed
	SameSpare    Times `json:"sameSpare"`    // nothing has changed
}

// Times are seconds from the start of a command to its end.
type Times struct {
	Rsync   float64 `json:"rsync"`
	Plain   float64 `json:"plain"`   // plx launch without a folder
	Workdir float64 `json:"workdir"` // plx launch --workdir
}

// table writes medians, and of what the folder costs also the least and the most. What it
// costs is the difference within a round.
func (r Results) table() string {
	var t strings.Builder
	m := r.Machine
	for _, row := range [][2]string{{"", ""}, {"---", "---"}, {"date, commit", m.Date + ", " + m.Commit},
		{"machine", fmt.Sprintf("%s, %d cores, %s, load before %s", m.Processor, m.Cores, m.Memory, m.Load)},
		{"system", m.System + ", " + m.Kernel + ", " + m.Go + ", " + r.Rsync}, {"command", "`" + m.Command + "`"},
		{"folder", fmt.Sprintf("%d files, %.0f MB", r.Files, float64(r.Bytes)/1e6)}} {
		fmt.Fprintf(&t, "| %s | %s |\n", row[0], row[1])
	}
	t.WriteString("\n| hosts | | rounds | rsync -a, s | launch, s | launch --workdir, s | the folder costs, s | least to most | over rsync |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, c := range r.Counts {
		c.rows(&t)
	}
	return t.String()
}

// rows writes a row for each case.
func (c Count) rows(t *strings.Builder) {
	for _, row := range []struct {
		name string
		of   func(Round) Times
	}{{"first time", func(r Round) Times { return r.First }}, {"one file changed", func(r Round) Times { return r.Changed }},
		{"nothing changed", func(r Round) Times { return r.Same }},
		{"one file changed, after a longer job", func(r Round) Times { return r.ChangedSpare }},
		{"nothing changed, after a longer job", func(r Round) Times { return r.SameSpare }}} {
		value := func(f func(Times) float64) float64 {
			return c.median(func(round Round) float64 { return f(row.of(round)) })
		}
		rsync := value(func(t Times) float64 { return t.Rsync })
		costs := func(t Times) float64 { return t.Workdir - t.Plain }
		all := c.sorted(func(r Round) float64 { return costs(row.of(r)) })
		fmt.Fprintf(t, "| %d | %s | %d | %.2f | %.2f | %.2f | %.2f | %.2f to %.2f | %.2fx |\n", c.Hosts, row.name, len(c.Rounds), rsync,
			value(func(t Times) float64 { return t.Plain }), value(func(t Times) float64 { return t.Workdir }),
			value(costs), all[0], all[len(all)-1], value(costs)/rsync)
	}
}

func (c Count) median(f func(Round) float64) float64 {
	all := c.sorted(f)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

func (c Count) sorted(f func(Round) float64) (all []float64) {
	for _, round := range c.Rounds {
		all = append(all, f(round))
	}
	slices.Sort(all)
	return all
}
