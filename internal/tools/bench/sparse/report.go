package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/plx-run/plx/internal/test/testhosts"
	"github.com/plx-run/plx/internal/tools/bench/measured"
)

// report makes tables and plots of the samples of one mode.
type report struct {
	mode string
	all  measured.Samples
}

// markdown returns all tables of the report.
func (r report) markdown() string {
	var b strings.Builder
	rows, last := [][]string{{"", ""}}, r.all[len(r.all)-1]
	for _, fact := range r.all[0].Config {
		value := string(fact.Value)
		if fact.Key == "command" {
			value = "`" + value + "`"
		}
		rows = append(rows, []string{fact.Key, value})
	}
	rounds := len(r.all.Pick(strings.Split(string(last.Name), "/")[1:]...))
	fmt.Fprintf(&b, "\n%s\n**All hosts share the %s cores of one machine**, which run the workers, the servers and the network. If nearly all cores are busy, the cores limit the speed, not the links.\n",
		measured.Table(append(rows, []string{"rounds", fmt.Sprint(rounds)})...), last.GetConfig("cores"))
	for _, rate := range r.all.Parts("rate") {
		link := r.all.Pick("rate=" + rate)
		bits, _ := testhosts.ParseRate(rate) // no error, because parse has checked the rate
		megabytes := func(unit string) string { return fmt.Sprintf("%.1f MB/s", link.Median(unit)/1e6) }
		fmt.Fprintf(&b, "\n### Links of %s\n\nA program that only sends data over TCP between two hosts reaches %s in one direction. If both directions are busy, it reaches %s in one direction and %s in the other, and keeps %.2f cores busy. The link carries at most %.1f MB/s of data, without packet headers.\n\n",
			rate, megabytes("one-B/s"), megabytes("there-B/s"), megabytes("back-B/s"), link.Median("link-cores"), netRate(bits)/1e6)
		if r.mode == partitioning {
			r.partitions(&b, rate)
			continue
		}
		fmt.Fprintf(&b, "The table shows the median words per second of each system. A column `hybrid / X` has the words per second of plx hybrid divided by those of X: above 1, plx hybrid is faster.\n\n%s\n![words per second over hosts](benchmarks/%s)\n\n%s",
			r.words(rate), r.picture(rate), r.details(rate))
	}
	return b.String()
}

// systems returns the compared systems that have samples.
func (r report) systems() []system {
	keys := r.all.Parts("system")
	return slices.DeleteFunc(slices.Clone(compared), func(x system) bool { return !slices.Contains(keys, x.key) })
}

// numbers returns the integer values that the samples have for a key such as
// hosts, in ascending order.
func (r report) numbers(key string) (all []int) {
	for _, part := range r.all.Parts(key) {
		if n, err := strconv.Atoi(part); err == nil {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all
}

// cell returns the samples of all rounds of one system, for a number of hosts
// and a link rate. Samples of failed runs have no value for words/s.
func (r report) cell(key string, hosts int, rate string) measured.Samples {
	return r.all.Pick("system="+key, fmt.Sprintf("hosts=%d", hosts), "rate="+rate)
}

func shown(cell measured.Samples, unit, format string, scale float64) string {
	switch {
	case cell.Of(unit) != nil:
		return fmt.Sprintf(format, cell.Median(unit)*scale)
	case cell != nil && unit == "words/s":
		return "failed"
	}
	return "-"
}

// fair is the smallest fraction of its possible speed that a system must reach
// for a fair comparison. Its formula gives the possible speed. If the system
// is slower, a comparison with it is void.
const fair = 0.8

// judge compares the time of a system's step with the system's formula. link
// is the fraction of the step during which the link must be busy. The result
// of is the shortest time that the formula allows, divided by the measured
// time. Both are 0 for one host and for missing samples. The time of computing
// is that of the system's run on one host; if there is no such run, it counts
// as zero.
func (r report) judge(x system, hosts int, rate string) (link, of float64) {
	c, alone := r.cell(x.key, hosts, rate), r.cell(x.key, 1, rate)
	step, busy := c.Median("sec/op"), c.Median("formula-sec/op")
	if hosts < 2 || step == 0 {
		return 0, 0
	}
	cores, _ := strconv.Atoi(r.all[0].GetConfig("cores")) // no error, because Facts has written the number
	return busy / step, allowed(busy, computing(alone.Median("sec/op"), alone.Median("cores"), hosts, max(1, cores)), x.series) / step
}

func void(of float64) bool { return of > 0 && of < fair }

// words returns a table with a row for each number of hosts. A row contains
// the words per second of each system, and their ratios.
func (r report) words(rate string) string {
	systems := r.systems()
	rows := [][]string{{"hosts"}}
	wanted := append([]string{"goal for 4 hosts or more"}, make([]string, len(systems))...)
	for _, x := range systems {
		rows[0] = append(rows[0], x.name)
	}
	others := slices.DeleteFunc(slices.Clone(systems), func(x system) bool { return x.key == best })
	for _, x := range others {
		rows[0] = append(rows[0], "hybrid / "+strings.TrimPrefix(x.name, "plx "))
		wanted = append(wanted, fmt.Sprintf("%.2f", x.wanted))
	}
	for _, hosts := range r.numbers("hosts") {
		row := []string{fmt.Sprint(hosts)}
		for _, x := range systems {
			row = append(row, shown(r.cell(x.key, hosts, rate), "words/s", "%.0f", 1))
		}
		for _, x := range others {
			top, other := r.cell(best, hosts, rate).Median("words/s"), r.cell(x.key, hosts, rate).Median("words/s")
			if top == 0 || other == 0 {
				row = append(row, "-")
				continue
			}
			text := fmt.Sprintf("%.2f", top/other)
			if hosts >= 4 && top/other < x.wanted {
				text += ", **missed**"
			}
			if _, of := r.judge(x, hosts, rate); void(of) {
				text += " (void)"
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	return measured.Table(append(rows, wanted)...)
}

// details returns a table with a row for each system and number of hosts. A
// row contains time, traffic and formula of a step.
func (r report) details(rate string) string {
	rows := [][]string{{"hosts", "system", "words/s", "ms per step", "MB per step", "MB per step by formula", "link busy by formula, share of the step", "speed, share of the formula's",
		"cores busy of " + r.all[0].GetConfig("cores"), "runs"}}
	for _, hosts := range r.numbers("hosts") {
		for _, x := range r.systems() {
			c := r.cell(x.key, hosts, rate)
			if c == nil {
				continue
			}
			words, runs := "failed", fmt.Sprint(len(c))
			if all := c.Of("words/s"); all != nil {
				words = all.Range("%.0f")
			}
			if failed := len(c.Of("failed")); failed > 0 {
				runs += fmt.Sprintf(", %d failed", failed)
			}
			part, of := "-", "-"
			if link, share := r.judge(x, hosts, rate); share > 0 {
				if part, of = fmt.Sprintf("%.2f", link), fmt.Sprintf("%.2f", share); void(share) && x.key != best {
					of += ": void"
				}
			}
			rows = append(rows, []string{fmt.Sprint(hosts), x.name, words, shown(c, "sec/op", "%.4g", 1000), shown(c, "link-B/op", "%.2f", 1e-6),
				shown(c, "formula-B/op", "%.2f", 1e-6), part, of, shown(c, "cores", "%.2f", 1), runs})
		}
	}
	return measured.Table(rows...)
}

// near is the largest acceptable slowdown of the number of partitions that
// plx's search chooses, relative to the best number.
const near = 0.10

// partitions writes a table that compares plx with its search for the number
// of partitions and plx with each fixed number.
func (r report) partitions(b *strings.Builder, rate string) {
	for _, hosts := range r.numbers("hosts") {
		rows := [][]string{{"partitions", "ms per step", "words/s", "cores busy of " + r.all[0].GetConfig("cores")}}
		row := func(name string, c measured.Samples) {
			words := shown(c, "words/s", "%.0f", 1)
			if all := c.Of("words/s"); all != nil {
				words = all.Range("%.0f")
			}
			rows = append(rows, []string{name, shown(c, "sec/op", "%.4g", 1000), words, shown(c, "cores", "%.2f", 1)})
		}
		for _, p := range r.numbers("system") {
			row(fmt.Sprint(p), r.cell(fmt.Sprint(p), hosts, rate))
		}
		row("chosen by the search", r.cell(searching, hosts, rate))
		fmt.Fprintf(b, "The table shows the time of a step on %d hosts, by the number of partitions:\n\n%s\n%s\n\n", hosts, measured.Table(rows...), r.verdict(hosts, rate))
	}
	fmt.Fprintf(b, "![time of a step over partitions](benchmarks/%s)\n", r.picture(rate))
}

// verdict returns a sentence that compares plx's search with the best fixed
// number of partitions. It names the number that the search chose, and the
// speed of the training.
func (r report) verdict(hosts int, rate string) string {
	step := func(p int) float64 { return r.cell(fmt.Sprint(p), hosts, rate).Median("sec/op") }
	tried := slices.DeleteFunc(r.numbers("system"), func(p int) bool { return step(p) == 0 })
	found := r.cell(searching, hosts, rate)
	if own := found.Median("sec/op"); own > 0 && len(tried) > 0 {
		best := slices.MinFunc(tried, func(a, b int) int { return int(1e9 * (step(a) - step(b))) })
		excess := own/step(best) - 1
		var chosen []string
		worst := -1.0
		for _, s := range found {
			if p, told := s.Value("P"); told {
				chosen = append(chosen, fmt.Sprintf("P = %.0f", p))
				if slices.Contains(tried, int(p)) {
					worst = max(worst, step(int(p))/step(best)-1)
				}
			}
		}
		text := fmt.Sprintf("P = %d is the fastest of the fixed numbers of partitions; the search chose %s. After the search, the step time of its run differs by %+.1f %% from that of the run with P = %d from the start",
			best, cmp.Or(strings.Join(chosen, ", "), "a number that it did not report"), 100*excess, best)
		if worst >= 0 {
			text += fmt.Sprintf(". In the run that had the chosen number from the start, it differs by %+.1f %%", 100*worst)
			excess = worst
		}
		if excess > near {
			text += fmt.Sprintf(": the goal of at most +%.0f %% is **not met**.", 100*near)
		} else {
			text += fmt.Sprintf(": the goal of at most +%.0f %% is met.", 100*near)
		}
		for _, s := range found {
			if said := s.GetConfig("said"); said != "" {
				text += " The search printed `" + said + "`."
			}
		}
		return text
	}
	return "The search cannot be compared: a run is missing."
}

func (r report) picture(rate string) string { return r.mode + "-" + rate + ".svg" }

// plots draws a plot for each link rate: words per second over hosts, or the
// time of a step over partitions.
func (r report) plots(folder string) (err error) {
	for _, rate := range r.all.Parts("rate") {
		var lines []any
		draw := func(name string, over []int, unit string, scale float64, cell func(int) measured.Samples) {
			var xs, ys []float64
			for _, x := range over {
				if c := cell(x); c.Of(unit) != nil {
					xs, ys = append(xs, float64(x)), append(ys, scale*c.Median(unit))
				}
			}
			if xs != nil {
				lines = append(lines, name, measured.Points(xs, ys))
			}
		}
		x, y := "hosts", "words per second"
		if r.mode == partitioning {
			x, y = "partitions", "ms a step"
			for _, hosts := range r.numbers("hosts") {
				draw(fmt.Sprintf("%d hosts", hosts), r.numbers("system"), "sec/op", 1000, func(p int) measured.Samples { return r.cell(fmt.Sprint(p), hosts, rate) })
				found := r.cell(searching, hosts, rate)
				if chosen := found.Of("P"); chosen != nil {
					draw(fmt.Sprintf("search, %d", hosts), []int{int(chosen[0])}, "sec/op", 1000, func(int) measured.Samples { return found })
				}
			}
		}
		for _, x := range r.systems() {
			draw(x.name, r.numbers("hosts"), "words/s", 1, func(hosts int) measured.Samples { return r.cell(x.key, hosts, rate) })
		}
		err = errors.Join(err, measured.Draw(filepath.Join(folder, r.picture(rate)), "Links of "+rate, x, y, r.mode == comparing, lines...))
	}
	return err
}
