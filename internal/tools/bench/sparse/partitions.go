package main

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/plx-run/plx/internal/tools/bench/lines"
)

// near is how much slower than the best number of partitions the search's
// choice may be.
const near = 0.10

// fixed are the numbers of partitions that were tried, ascending.
func (r *Results) fixed() (all []int) {
	for _, key := range r.keys() {
		if p, err := strconv.Atoi(key); err == nil {
			all = append(all, p)
		}
	}
	slices.Sort(all)
	return all
}

// partitionTable compares the search with every number of partitions.
func (r *Results) partitionTable(b *strings.Builder, rate string) {
	for _, hosts := range r.hosts() {
		fmt.Fprintf(b, "%s:\n\n| partitions | ms a step | words/s | cores busy of %d |\n|---|---|---|---|\n", counted(hosts), r.Machine.Cores)
		for _, p := range r.fixed() {
			r.partitionRow(b, fmt.Sprint(p), r.cell(strconv.Itoa(p), hosts, rate))
		}
		found := r.cell(searching, hosts, rate)
		r.partitionRow(b, "the search's", found)
		fmt.Fprintf(b, "\n%s\n\n", r.searchVerdict(found, hosts, rate))
	}
	fmt.Fprintf(b, "![time of a step over partitions](benchmarks/%s)\n", r.picture(rate))
}

func (r *Results) partitionRow(b *strings.Builder, name string, c cell) {
	if !c.measured() {
		fmt.Fprintf(b, "| %s | %s | - | - |\n", name, shown(c))
		return
	}
	fmt.Fprintf(b, "| %s | %.4g | %.0f to %.0f | %.2f |\n", name, c.millis, c.words[0], c.words[len(c.words)-1], c.cores)
}

// bestFixed is the number of partitions with the shortest step.
func (r *Results) bestFixed(hosts int, rate string) (p int, millis float64) {
	millis = math.Inf(1)
	for _, try := range r.fixed() {
		if c := r.cell(strconv.Itoa(try), hosts, rate); c.measured() && c.millis < millis {
			p, millis = try, c.millis
		}
	}
	return p, millis
}

// searchVerdict compares what the search chose, and how fast the training was
// with it, with the best number of partitions.
func (r *Results) searchVerdict(found cell, hosts int, rate string) string {
	best, millis := r.bestFixed(hosts, rate)
	if best == 0 || !found.measured() {
		return "The search cannot be compared: a run is missing."
	}
	own := found.millis/millis - 1
	worst, tried := r.worstChoice(found.choice, hosts, rate)
	text := fmt.Sprintf("The best is P = %d; the search chose %s. Behind it a step takes %+.1f %% against the best", best, list(found.choice), 100*own)
	if tried {
		text += fmt.Sprintf(", and with that number from the start %+.1f %%", 100*(worst/millis-1))
		own = worst/millis - 1
	}
	if own > near {
		text += fmt.Sprintf(": **not within %.0f %%**.", 100*near)
	} else {
		text += fmt.Sprintf(": within %.0f %%.", 100*near)
	}
	for _, said := range r.choices(hosts, rate) {
		text += " `" + said + "`"
	}
	return text
}

// worstChoice is the longest step of the numbers that were chosen, if all of
// them were tried.
func (r *Results) worstChoice(choice []int, hosts int, rate string) (millis float64, tried bool) {
	for _, p := range choice {
		c := r.cell(strconv.Itoa(p), hosts, rate)
		if !c.measured() {
			return 0, false
		}
		millis = max(millis, c.millis)
	}
	return millis, len(choice) > 0
}

// choices are the lines in which the search told its choice.
func (r *Results) choices(hosts int, rate string) (all []string) {
	for _, run := range r.Runs {
		if run.System != searching || run.Hosts != hosts || run.Rate != rate {
			continue
		}
		for _, line := range run.Said {
			if choiceLine.MatchString(line) {
				_, text, _ := strings.Cut(line, "plx: ")
				all = append(all, text)
			}
		}
	}
	return all
}

func list(choices []int) string {
	if len(choices) == 0 {
		return "nothing that it told"
	}
	var all []string
	for _, p := range choices {
		all = append(all, fmt.Sprintf("P = %d", p))
	}
	return strings.Join(all, ", ")
}

// partitionPlots draws the time of a step over partitions.
func (r *Results) partitionPlots(folder string) error {
	for _, rate := range r.rates() {
		p := lines.New("Links of "+rate, "partitions", "ms a step")
		for _, hosts := range r.hosts() {
			var xs, ys []float64
			for _, try := range r.fixed() {
				if c := r.cell(strconv.Itoa(try), hosts, rate); c.measured() {
					xs, ys = append(xs, float64(try)), append(ys, c.millis)
				}
			}
			p.Add(counted(hosts), xs, ys)
			if c := r.cell(searching, hosts, rate); c.measured() && len(c.choice) > 0 {
				p.Add(fmt.Sprintf("search, %d", hosts), []float64{float64(c.choice[0])}, []float64{c.millis})
			}
		}
		if err := p.SaveSVG(filepath.Join(folder, r.picture(rate))); err != nil {
			return err
		}
	}
	return nil
}
