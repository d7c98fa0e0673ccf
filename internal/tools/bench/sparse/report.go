package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plx-run/plx/internal/tools/bench/lines"
)

// markdown is what was measured, for a reader.
func (r *Results) markdown() string {
	var b strings.Builder
	r.circumstances(&b)
	for _, rate := range r.rates() {
		raw := r.raw(rate)
		fmt.Fprintf(&b, "\n### Links of %s\n\nRaw TCP between two hosts: %s one way; %s and %s with both ways busy, which keeps %.2f cores busy. Headers leave %s.\n\n",
			rate, megabytes(raw.One), megabytes(raw.There), megabytes(raw.Back), raw.Cores, megabytes(raw.Net))
		if r.Mode == partitioning {
			r.partitionTable(&b, rate)
			continue
		}
		r.wordsTable(&b, rate)
		r.goals(&b, rate)
		fmt.Fprintf(&b, "\n![words per second over hosts](benchmarks/%s)\n\n", r.picture(rate))
		r.detailTable(&b, rate)
	}
	return b.String()
}

func (r *Results) circumstances(b *strings.Builder) {
	m, x := r.Machine, r.Model
	word, class, dense, all := x.sizes()
	fmt.Fprintf(b, "\n| | |\n|---|---|\n")
	rounds := 0
	for _, run := range r.Runs {
		rounds = max(rounds, run.Round)
	}
	for _, row := range [][2]string{
		{"date, commit", m.Date + ", " + m.Commit},
		{"machine", fmt.Sprintf("%s, %d cores, %s, load before %s", m.Processor, m.Cores, m.Memory, m.Load)},
		{"system", fmt.Sprintf("%s, %s, %s, python3-torch %s, OpenBLAS %s", m.System, m.Kernel, m.Go, m.PyTorch, m.OpenBLAS)},
		{"command", "`" + m.Command + "`"},
		{"model", fmt.Sprintf("two tables of %d rows of %d and %d elements, LSTM of %d cells: %.1f MB, %.1f MB of them dense",
			x.Vocabulary, x.Width, x.Width+1, x.Hidden, all/1e6, dense/1e6)},
		{"a worker's step", fmt.Sprintf("%d rows of text of %d words, %d samples", x.Batch, x.Length, x.Samples)},
		{"rows it touches", fmt.Sprintf("%.0f of the words' table and %.0f of the softmax's, %.2f %% of all: %.2f MB",
			r.Rows.Words, r.Rows.Classes, 100*r.Rows.Part, (r.Rows.Words*word+r.Rows.Classes*class)/1e6)},
		{"rounds", fmt.Sprint(rounds)},
	} {
		fmt.Fprintf(b, "| %s | %s |\n", row[0], row[1])
	}
	fmt.Fprintf(b, "\n**The %d cores carry all hosts**, their workers, servers and network: where nearly all of them are busy, they and not the links are the limit.\n", m.Cores)
	if len(r.LeftOut) > 0 {
		fmt.Fprintf(b, "\nFlags that this plx did not have and that were left out: %s.\n", strings.Join(r.LeftOut, "; "))
	}
}

// measuredSystems are those of the compared ones that have runs.
func (r *Results) measuredSystems() (all []system) {
	for _, x := range compared {
		if slices.Contains(r.keys(), x.key) {
			all = append(all, x)
		}
	}
	return all
}

// best is the system that the others are compared with.
const best = "hybrid"

// wordsTable has a row for each number of hosts: words per second, and ratios.
func (r *Results) wordsTable(b *strings.Builder, rate string) {
	systems := r.measuredSystems()
	head, line := "| hosts |", "|---|"
	for _, x := range systems {
		head, line = head+" "+x.name+" |", line+"---|"
	}
	for _, x := range systems {
		if x.key != best {
			head, line = head+" hybrid / "+strings.TrimPrefix(x.name, "plx ")+" |", line+"---|"
		}
	}
	fmt.Fprintf(b, "Words per second, medians; then how many times as many plx hybrid has.\n\n%s\n%s\n", head, line)
	for _, hosts := range r.hosts() {
		fmt.Fprintf(b, "| %d |", hosts)
		for _, x := range systems {
			fmt.Fprintf(b, " %s |", shown(r.cell(x.key, hosts, rate)))
		}
		for _, x := range systems {
			if x.key != best {
				fmt.Fprintf(b, " %s |", r.ratioText(x, hosts, rate))
			}
		}
		fmt.Fprintln(b)
	}
}

func shown(c cell) string {
	switch {
	case c.measured():
		return fmt.Sprintf("%.0f", median(c.words))
	case c.failed > 0:
		return "failed"
	}
	return "-"
}

// ratio is the best system's words over another's; 0 where one of them has
// none.
func (r *Results) ratio(key string, hosts int, rate string) float64 {
	top, other := r.cell(best, hosts, rate), r.cell(key, hosts, rate)
	if !top.measured() || !other.measured() {
		return 0
	}
	return median(top.words) / median(other.words)
}

func (r *Results) ratioText(x system, hosts int, rate string) string {
	ratio := r.ratio(x.key, hosts, rate)
	switch {
	case ratio == 0:
		return "-"
	case r.judge(x, hosts, rate).void():
		return fmt.Sprintf("%.2f (void)", ratio)
	}
	return fmt.Sprintf("%.2f", ratio)
}

// goals compares with what is wanted, on the largest number of hosts and
// half of it.
func (r *Results) goals(b *strings.Builder, rate string) {
	fmt.Fprintln(b)
	for _, goal := range []struct {
		key, name string
		least     float64
	}{{"allreduce", "all-reduce of dense gradients", 6.02}, {"ps", "a plain parameter server", 2.8}, {"torch-dense", "PyTorch with dense gradients", 1}, {"torch-sparse", "PyTorch with sparse gradients", 1}} {
		i := slices.IndexFunc(compared, func(x system) bool { return x.key == goal.key })
		var said, ratios []string
		before, grows := 0.0, true
		for _, hosts := range slices.Sorted(slices.Values(r.hosts())) {
			ratio := r.ratio(goal.key, hosts, rate)
			if hosts == 1 || ratio == 0 {
				continue
			}
			grows, before = grows && ratio > before, ratio
			ratios = append(ratios, fmt.Sprintf("%.2f", ratio))
			if hosts < 4 {
				continue
			}
			verdict := "reached"
			if ratio < goal.least {
				verdict = "**missed**"
			}
			if r.judge(compared[i], hosts, rate).void() {
				verdict += ", but void"
			}
			said = append(said, fmt.Sprintf("%s on %d hosts", verdict, hosts))
		}
		if len(said) == 0 {
			continue
		}
		growth := "grows with the hosts"
		if !grows {
			growth = "does not always grow with the hosts"
		}
		fmt.Fprintf(b, "- Over %s, wanted %v times: %s. From two hosts on the ratio %s: %s.\n", goal.name, goal.least, strings.Join(said, ", "), growth, strings.Join(ratios, ", "))
	}
}

// detailTable has a row for each system and number of hosts.
func (r *Results) detailTable(b *strings.Builder, rate string) {
	fmt.Fprintf(b, "| hosts | system | words/s | ms a step | MB a step | MB by formula | link's part | of what the formula allows | cores busy of %d | runs |\n", r.Machine.Cores)
	fmt.Fprintf(b, "|---|---|---|---|---|---|---|---|---|---|\n")
	for _, hosts := range r.hosts() {
		for _, x := range r.measuredSystems() {
			c := r.cell(x.key, hosts, rate)
			if c.runs == 0 {
				continue
			}
			if !c.measured() {
				fmt.Fprintf(b, "| %d | %s | failed | - | - | - | - | - | - | %d |\n", hosts, x.name, c.runs)
				continue
			}
			v := r.judge(x, hosts, rate)
			link, of := "-", "-"
			if hosts > 1 {
				link, of = fmt.Sprintf("%.2f", v.link), fmt.Sprintf("%.2f", v.formula)
				if v.void() && x.key != best {
					of += ": void"
				}
			}
			runs := fmt.Sprint(c.runs)
			if c.failed > 0 {
				runs += fmt.Sprintf(", %d failed", c.failed)
			}
			fmt.Fprintf(b, "| %d | %s | %.0f to %.0f | %.4g | %.2f | %.2f | %s | %s | %.2f | %s |\n", hosts, x.name,
				c.words[0], c.words[len(c.words)-1], c.millis, c.link/1e6, v.demand.direction/1e6, link, of, c.cores, runs)
		}
	}
}

func (r *Results) picture(rate string) string { return r.Mode + "-" + rate + ".svg" }

// plots draws words per second over hosts, a picture for each rate.
func (r *Results) plots(folder string) error {
	if r.Mode == partitioning {
		return r.partitionPlots(folder)
	}
	for _, rate := range r.rates() {
		p := lines.New("Links of "+rate, "hosts", "words per second")
		p.LogY()
		for _, x := range r.measuredSystems() {
			var xs, ys []float64
			for _, hosts := range slices.Sorted(slices.Values(r.hosts())) {
				if c := r.cell(x.key, hosts, rate); c.measured() {
					xs, ys = append(xs, float64(hosts)), append(ys, median(c.words))
				}
			}
			p.Add(x.name, xs, ys)
		}
		if err := p.SaveSVG(filepath.Join(folder, r.picture(rate))); err != nil {
			return err
		}
	}
	return nil
}
