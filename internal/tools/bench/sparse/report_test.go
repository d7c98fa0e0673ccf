package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/measured"
)

// made are results of three systems on one, two and four hosts; the plain
// server is slower than its formula allows on four.
func made() *Results {
	r := &Results{Mode: comparing, Model: small, Rows: Rows{Words: 8, Classes: 30, Part: 0.019}, Machine: Machine{Machine: measured.Machine{Cores: 2, Date: "2026-01-02"}},
		Raw: []Raw{{Rate: "1mbit", Net: 100_000, One: 99_000}}}
	for _, round := range []int{1, 2, 3} {
		for hosts, millis := range map[int][3]float64{1: {10, 100, 10}, 2: {50, 1000, 40}, 4: {900, 1500, 60}} {
			for i, key := range []string{"ps", "allreduce", "hybrid"} {
				ms := millis[i] * (1 + 0.01*float64(round))
				r.Runs = append(r.Runs, Run{System: key, Hosts: hosts, Rate: "1mbit", Round: round, Millis: []float64{ms, ms}, Words: 1e4 * float64(hosts) / ms, Cores: 1})
			}
		}
	}
	return r
}

func TestMarkdown(t *testing.T) {
	text := made().markdown()
	for _, want := range []string{
		"| hosts | plx plain PS | plx all-reduce | plx hybrid | hybrid / plain PS | hybrid / all-reduce |",
		"| 1 | 980 | 98 | 980 | 1.00 | 10.00 |",
		"15.00 (void) |", "reached on 4 hosts", "reached, but void on 4 hosts", "![words per second over hosts](benchmarks/sparse-1mbit.svg)",
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
	r := made()
	if err := r.failures(); err != nil {
		t.Error(err)
	}
	for i := range r.Runs {
		if run := &r.Runs[i]; run.System == "ps" && (run.Hosts == 2 || run.Hosts == 4 && run.Round == 1) {
			*run = Run{System: run.System, Hosts: run.Hosts, Rate: run.Rate, Round: run.Round, Failed: "it broke"}
		}
	}
	text := r.markdown()
	for _, want := range []string{"| 2 | failed |", "3, 1 failed"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	wellFormed(t, text)
	if err := r.failures(); err == nil || strings.Count(err.Error(), "it broke") != 4 {
		t.Errorf("four runs failed: %v", err)
	}
}

func TestPartitions(t *testing.T) {
	r := &Results{Mode: partitioning, Model: small, Machine: Machine{Machine: measured.Machine{Cores: 2}}}
	for key, millis := range map[string]float64{"1": 100, "2": 60, "4": 50, "8": 55, searching: 52} {
		r.Runs = append(r.Runs, Run{System: key, Hosts: 8, Rate: "1gbit", Round: 1, Millis: []float64{millis}, Words: 1})
	}
	i := len(r.Runs) - 1
	for ; r.Runs[i].System != searching; i-- {
	}
	r.Runs[i].Choice, r.Runs[i].Said = 4, []string{"worker:0 h1 ! plx: choice P = 4: the fastest of 5"}
	text := r.markdown()
	for _, want := range []string{"The best is P = 4; the search chose P = 4.", "+4.0 % against the best, and with that number from the start +0.0 %: within 10 %", "`choice P = 4: the fastest of 5`"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	wellFormed(t, text)
	r.Runs[i].Choice = 2
	if text := r.markdown(); !strings.Contains(text, "from the start +20.0 %: **not within 10 %**") {
		t.Error(text)
	}
	r.Runs[i].Choice, r.Runs[i].Millis[0] = 16, 56 // which was not tried
	if text := r.markdown(); !strings.Contains(text, "**not within 10 %**") {
		t.Error(text)
	}
}

// What is written is read again, and only the document's part is changed.
func TestWrite(t *testing.T) {
	s := &settings{out: t.TempDir(), mode: comparing}
	page := filepath.Join(s.out, "benchmarks.md")
	if err := os.WriteFile(page, []byte("before\n<!-- sparse: begin -->\nold\n<!-- sparse: end -->\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := made()
	if err := measured.Save(s.file(), r); err != nil {
		t.Fatal(err)
	}
	r = &Results{}
	if err := measured.Load(s.file(), r); err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	if err := r.write(s, &printed); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if want := "before\n<!-- sparse: begin -->\n" + printed.String() + "<!-- sparse: end -->\nafter\n"; string(text) != want {
		t.Errorf("got %s\nwant %s", text, want)
	}
	picture, err := os.ReadFile(filepath.Join(s.out, "benchmarks", "sparse-1mbit.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plx plain PS", "plx all-reduce", "plx hybrid"} {
		if !strings.Contains(string(picture), ">"+name+"<") {
			t.Errorf("the picture has no line %q", name)
		}
	}
}

func TestFlagsOf(t *testing.T) {
	known := flagsOf("usage: lm [flags]\n  -every steps\n    \tsteps -from one\n  --arch x\n\nflags of plx:\n  -search-partitions\n    \ty\n")
	if len(known) != 3 || !known["every"] || !known["arch"] || !known["search-partitions"] {
		t.Errorf("got %v", known)
	}
	x := system{wishes: []string{"--search-partitions=false", "--prefetch=false"}}
	if yes, no := x.granted(known); len(yes) != 1 || len(no) != 1 || no[0] != "--prefetch=false" {
		t.Errorf("granted %v, not %v", yes, no)
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
}
