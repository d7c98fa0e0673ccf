package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/measured"
)

// made are results of one victim and two faults, one of which was not borne.
func made() *Results {
	r := &Results{Machine: measured.Machine{Cores: 2, Date: "2026-01-02"}, References: []Reference{{"ps", sum, 5}, {"hybrid", sum, 6.5}}}
	for i, arch := range architectures {
		r.keep(Sample{Cell: Cell{arch, worker, kill}.Name(), Outcome: recovers, measures: measures{Noticed: 0.25 * float64(i), Back: 3, Redone: 4 + i, Generations: 1}})
	}
	r.keep(Sample{Cell: "ps/worker/stop", Outcome: recovers, Failed: "exit status 1\nthe weights are others"})
	for _, mode := range modes {
		r.keep(Sample{Cell: Cell{mode, worker, kill}.Name(), Outcome: goesOn, measures: measures{Noticed: 0.5, Back: 0.5}})
	}
	r.keep(Sample{Cell: "ps/launcher/kill", Outcome: ends, Ended: 4.5, measures: measures{Noticed: -1, Back: -1, Redone: 7, Reached: 20, Resumed: 14}})
	return r
}

func TestMarkdown(t *testing.T) {
	text := made().markdown()
	for _, want := range []string{
		"| in step | Another worker, or its host | SIGKILL | recovers | 0.0 to 0.5 s | 3.0 s | 4 to 6 | 3 of 3 |",
		"| SIGSTOP | recovers | - | - | - | **0 of 1** |",
		"| SIGKILL | ends | - | 4.5 s | 7 to 7 | 1 of 1 |",
		"| async, ssp:2, backup:1 | Another worker, or its host | SIGKILL | goes on | 0.5 s | 0.5 s | 0 to 0 | 3 of 3 |",
		"in 5.0 to 6.5 s", "8 tried of",
		"- broken: ps/worker/stop, which recovers: exit status 1 the weights are others\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	cells := 0
	for line := range strings.Lines(text) {
		n := strings.Count(line, "|")
		if strings.HasPrefix(line, "|") && cells != 0 && n != cells {
			t.Errorf("%d cells, above it %d: %s", n, cells, line)
		}
		if cells = n; !strings.HasPrefix(line, "|") {
			cells = 0
		}
	}
}

// What is written is read again, and only the document's part is changed.
func TestWrite(t *testing.T) {
	s := &settings{out: t.TempDir()}
	page := filepath.Join(s.out, "reliability.md")
	if err := os.WriteFile(page, []byte("before\n<!-- grid: begin -->\nold\n<!-- grid: end -->\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	want := made()
	if err := measured.Save(s.samples(), want); err != nil {
		t.Fatal(err)
	}
	var read Results
	if err := measured.Load(s.samples(), &read); err != nil || !reflect.DeepEqual(&read, want) {
		t.Errorf("%v, %+v", err, read)
	}
	if err := read.write(s); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if want := "before\n<!-- grid: begin -->\n" + want.markdown() + "<!-- grid: end -->\nafter\n"; err != nil || string(text) != want {
		t.Errorf("got %s, %v\nwant %s", text, err, want)
	}
}

func TestFailuresAreNamed(t *testing.T) {
	if err := made().failures(); err == nil || !strings.HasPrefix(err.Error(), "ps/worker/stop: exit status 1") {
		t.Error(err)
	}
	r := made()
	r.keep(Sample{Cell: "ps/worker/stop"})
	if err := r.failures(); err != nil || len(r.Samples) != 8 {
		t.Errorf("%v, %d samples", err, len(r.Samples))
	}
}
