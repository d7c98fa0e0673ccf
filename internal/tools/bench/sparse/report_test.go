package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"

	"github.com/plx-run/plx/internal/tools/bench/measured"
)

// sample is a round of a system; without milliseconds it failed.
func sample(key string, hosts int, millis, link float64) *benchfmt.Result {
	r := &benchfmt.Result{Config: []benchfmt.Config{measured.Fact("cores", "2")}, Name: fmt.Appendf(nil, "LM/system=%s/hosts=%d/rate=1mbit", key, hosts), Iters: 2,
		Values: []benchfmt.Value{{Value: millis / 1000, Unit: "sec/op"}, {Value: 1e4 * float64(hosts) / millis, Unit: "words/s"}, {Value: 1, Unit: "cores"}, {Value: link, Unit: "formula-sec/op"}}}
	if millis == 0 {
		r.Values = []benchfmt.Value{{Value: 1, Unit: "failed"}}
	}
	return r
}

// made are three systems on one, two and four hosts; the all-reduce is slower than its
// formula allows on four.
func made() (all measured.Samples) {
	for _, round := range []float64{1, 2, 3} {
		for _, at := range []struct {
			hosts  int
			millis [3]float64
		}{{1, [3]float64{10, 100, 10}}, {2, [3]float64{50, 1000, 40}}, {4, [3]float64{100, 1500, 60}}} {
			for i, key := range []string{"ps", "allreduce", "hybrid"} {
				all = append(all, sample(key, at.hosts, at.millis[i]*(1+0.01*round), 0.08*float64(at.hosts)))
			}
		}
	}
	return all
}

func TestMarkdown(t *testing.T) {
	text := report{comparing, made()}.markdown()
	for _, want := range []string{
		"| hosts | plx plain PS | plx all-reduce | plx hybrid | hybrid / plain PS | hybrid / all-reduce |",
		"| 1 | 980 | 98 | 980 | 1.00 | 10.00 |", "1.67, **missed** | 25.00 (void) |", "| goal for 4 hosts or more | | | | 2.80 | 6.02 |",
		"| 4 | plx all-reduce | 26 to 26 | 1530 | - | - | 0.21 | 0.25: void | 1.00 | 3 |", "![words per second over hosts](benchmarks/sparse-1mbit.svg)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	wellFormed(t, text)
}

// wellFormed wants all rows of a table to have as many cells.
func wellFormed(t *testing.T, text string) {
	t.Helper()
	cells := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			cells = 0
			continue
		}
		if n := strings.Count(line, "|"); cells != 0 && n != cells {
			t.Errorf("%d cells, above it %d: %s", n-1, cells-1, line)
		} else {
			cells = n
		}
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") || strings.Contains(text, "%!") {
		t.Errorf("there is no such number:\n%s", text)
	}
}

// A run that failed is said to have failed, and leaves the others standing.
func TestFailures(t *testing.T) {
	all := made()
	for i, s := range all {
		if hosts := measured.Part(s, "hosts"); measured.Part(s, "system") == "ps" && (hosts == "2" || hosts == "4" && i < 9) {
			all[i] = sample("ps", int(hosts[0]-'0'), 0, 0)
		}
	}
	text := report{comparing, all}.markdown()
	for _, want := range []string{"| 2 | failed |", "3, 1 failed", "| 2 | plx plain PS | failed | - | - | - | - | - | - | 3, 3 failed |"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	wellFormed(t, text)
}

func TestPartitions(t *testing.T) {
	found := sample(searching, 8, 52, 0)
	r := report{partitioning, measured.Samples{sample("1", 8, 100, 0), sample("2", 8, 60, 0), sample("4", 8, 50, 0), sample("8", 8, 55, 0), found}}
	choose := func(p float64) string {
		found.Values = append(found.Values[:4:4], benchfmt.Value{Value: p, Unit: "P"})
		text := r.markdown()
		wellFormed(t, text)
		return text
	}
	found.Config = append(found.Config, measured.Fact("said", "choice P = 4: the fastest of 5"))
	text := choose(4)
	for _, want := range []string{"P = 4 is the fastest of the fixed numbers of partitions; the search chose P = 4.", "differs by +4.0 % from that of the run with P = 4 from the start. In the run that had the chosen number from the start, it differs by +0.0 %: the goal of at most +10 % is met.", "`choice P = 4: the fastest of 5`"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if text := choose(2); !strings.Contains(text, "In the run that had the chosen number from the start, it differs by +20.0 %: the goal of at most +10 % is **not met**") {
		t.Error(text)
	}
	found.Values[0].Value = 0.056
	if text := choose(16); !strings.Contains(text, "is **not met**") { // which was not tried
		t.Error(text)
	}
}

// The page shows what is recorded, and the pictures have a line for each system.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	for mode, lines := range map[string][]string{comparing: {"plx plain PS", "PyTorch sparse", "plx hybrid"}, partitioning: {"8 hosts", "search, 8"}} {
		s, err := parse([]string{"--out", "../../../../docs"}, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		s.mode = mode
		all, err := measured.Load(s.file())
		if err != nil {
			t.Fatal(err)
		}
		r := report{mode, all}
		part := r.markdown()
		if want := "<!-- " + mode + ": begin -->\n" + part + "<!-- " + mode + ": end -->\n"; !strings.Contains(string(page), want) {
			t.Errorf("docs/benchmarks.md does not have\n%s", want)
		}
		wellFormed(t, part)
		if err := r.plots(out); err != nil {
			t.Fatal(err)
		}
		picture, err := os.ReadFile(filepath.Join(out, r.picture("100mbit")))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range lines {
			if !strings.Contains(string(picture), ">"+name+"<") {
				t.Errorf("the picture has no line %q", name)
			}
		}
	}
}

func TestParse(t *testing.T) {
	s, err := parse([]string{partitioning, "--quick", "--hosts", "2,3", "--partitions=1,4"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	systems, err := s.systems()
	if err != nil || len(systems) != 3 || systems[2].key != searching || len(s.hosts) != 2 || s.model.Vocabulary > 10000 {
		t.Errorf("%v, %+v, %+v", err, s, systems)
	}
	for _, args := range [][]string{
		{"more"}, {"--hosts", "0"}, {"--hosts", "x"}, {"--rates", "fast"}, {"--only", "what"}, {"--rounds", "0"}, {"--samples", "90000"}, {"--raw-seconds", "NaN"},
	} {
		if _, err := parse(args, t.Output()); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	if got := command([]string{partitioning, "--logs", "x", "--rounds", "1"}); got != `make bench-partitions ARGS="--rounds 1"` {
		t.Error(got)
	}
}
