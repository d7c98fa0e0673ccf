package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"

	"github.com/plx-run/plx/internal/tools/bench/measured"
)

// The two units of a round's result: the ratio of plx's time to the other
// program's, or the difference of these times in seconds.
const (
	ratio = "ratio"
	more  = "more-sec"
)

// sample returns the benchmark result of one round of a line. All times are in
// seconds; beyond is subtracted from the time plx.
func (l line) sample(part string, facts []benchfmt.Config, plx, beyond, peer float64) *benchfmt.Result {
	unit, figure := ratio, (plx-beyond)/peer
	if l.over {
		unit, figure = more, plx-beyond-peer
	}
	values := []benchfmt.Value{{Value: plx, Unit: "plx-sec"}, {Value: beyond, Unit: "launch-sec"}, {Value: peer, Unit: "peer-sec"}, {Value: figure, Unit: unit}, {Value: l.goal, Unit: "goal"}}
	return &benchfmt.Result{
		Config: append(slices.Clone(facts), measured.Fact("peer", l.peer.name)), Iters: 1,
		Name:   []byte(title(part) + "/" + strings.ReplaceAll(l.name, " ", "_")),
		Values: slices.DeleteFunc(values, func(v benchfmt.Value) bool { return v.Unit == "launch-sec" && v.Value == 0 })}
}

// title returns a part's name with a capital letter, as Go's benchmark format
// requires.
func title(part string) string { return strings.ToUpper(part[:1]) + part[1:] }

// replace returns all samples, except that the samples now replace those of
// the same part. All samples in now are of one part.
func replace(all, now measured.Samples) measured.Samples {
	part := string(now[0].Name.Base())
	other := func(r *benchfmt.Result) bool { return string(r.Name.Base()) != part }
	i := slices.IndexFunc(all, func(r *benchfmt.Result) bool { return !other(r) })
	if i < 0 {
		i = len(all)
	}
	rest := slices.DeleteFunc(slices.Clone(all[i:]), func(r *benchfmt.Result) bool { return !other(r) })
	return slices.Concat(all[:i], now, rest)
}

// lines groups consecutive samples by their line.
func lines(all measured.Samples) (each []measured.Samples) {
	for i, r := range all {
		if i == 0 || string(r.Name) != string(all[i-1].Name) {
			each = append(each, nil)
		}
		each[len(each)-1] = append(each[len(each)-1], r)
	}
	return each
}

// figures returns the results of all rounds of a line, and the format for
// printing one result.
func figures(l measured.Samples) (measured.Values, string) {
	if all := l.Of(more); all != nil {
		return all, "%+.2f s"
	}
	return l.Of(ratio), "%.2f"
}

// check returns an error that names the lines that have become slower by more
// than the noise. The results of a line's rounds spread over a range; the
// noise is the wider one of the recorded and the new range.
func check(recorded, now measured.Samples) error {
	var worse []string
	for _, l := range lines(now) {
		for _, old := range lines(recorded) {
			was, _ := figures(old)
			is, _ := figures(l)
			if string(old[0].Name) == string(l[0].Name) && is.Median() > was.Median()+max(was[len(was)-1]-was[0], is[len(is)-1]-is[0]) {
				worse = append(worse, string(l[0].Name))
			}
		}
	}
	if worse != nil {
		return fmt.Errorf("slower than recorded: %s", strings.Join(worse, "; "))
	}
	return nil
}

// table returns a table with a row for each line: the medians of times and
// results, and the smallest and largest result.
func table(all measured.Samples) string {
	rows := [][]string{{"part", "what was timed", "plx", "other program", "time of the other program", "plx / other program, or the difference", "range over the rounds", "goal"}}
	parts := [][]string{{"part", "date, commit", "machine", "rounds"}}
	for _, l := range lines(all) {
		figures, format := figures(l)
		part, name, _ := strings.Cut(strings.ReplaceAll(string(l[0].Name), "_", " "), "/")
		part = strings.ToLower(part)
		goal, met, own := l.Median("goal"), "met", measured.Values(nil)
		if figures.Median() > goal {
			met = "**not met**"
		}
		for _, r := range l {
			plx, _ := r.Value("plx-sec")
			launch, _ := r.Value("launch-sec")
			own = append(own, plx-launch)
		}
		slices.Sort(own)
		plx := seconds(own.Median())
		if l.Of("launch-sec") != nil {
			plx += " (" + seconds(l.Median("plx-sec")) + " with the launch)"
		}
		fact := l[0].GetConfig
		rows = append(rows, []string{part, name, plx, fact("peer"), seconds(l.Median("peer-sec")), fmt.Sprintf(format, figures.Median()),
			figures.Range(format), fmt.Sprintf(format, goal) + ", " + met})
		if parts[len(parts)-1][0] != part {
			parts = append(parts, []string{part, fact("date") + ", " + fact("commit"), fmt.Sprintf("%s, %s cores, load before %s; %s, %s, %s",
				fact("cpu"), fact("cores"), fact("load-before"), fact("system"), fact("kernel"), fact("go")), fmt.Sprint(len(l))})
		}
	}
	return measured.Table(rows...) + "\n" + measured.Table(parts...)
}

// seconds formats a time, in milliseconds if it is less than 0.1 s.
func seconds(s float64) string {
	if s < 0.1 {
		return fmt.Sprintf("%.2f ms", s*1000)
	}
	return fmt.Sprintf("%.2f s", s)
}

// compare prints benchstat's comparison of the recorded and the new samples,
// for the lines that were measured now.
func compare(ctx context.Context, scratch string, recorded, now measured.Samples) error {
	recorded = slices.DeleteFunc(slices.Clone(recorded), func(r *benchfmt.Result) bool {
		return !slices.ContainsFunc(now, func(n *benchfmt.Result) bool { return string(n.Name) == string(r.Name) })
	})
	was, is := filepath.Join(scratch, "recorded.txt"), filepath.Join(scratch, "now.txt")
	if err := errors.Join(recorded.Save(was), now.Save(is)); err != nil {
		return err
	}
	cmd := command(ctx, "go", "-C", "internal/tools", "tool", "benchstat", "-table", "", "-filter", ".unit:("+ratio+" OR "+more+")", "recorded="+was, "now="+is)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
