package main

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/measured"
)

// results has one line whose rounds have these ratios.
func results(ratios ...float64) *Results {
	l := Line{Name: "hostname", Peer: "pdsh", Goal: 1}
	for _, r := range ratios {
		l.Samples = append(l.Samples, Sample{Plx: 1 + 2*r, Beyond: 1, Peer: 2})
	}
	return &Results{Parts: []Part{{Name: "launch", Machine: measured.Machine{Commit: "abc"}, Lines: []Line{l}}}}
}

func TestCheck(t *testing.T) {
	recorded := results(1.0, 1.1, 1.2)
	for _, c := range []struct {
		now   *Results
		worse bool
	}{
		{results(1.1, 1.1, 1.1), false},
		{results(1.3, 1.3, 1.3), false}, // within the noise that was recorded
		{results(1.31, 1.31, 1.31), true},
		{results(1.1, 1.5, 1.7), false}, // within its own noise
		{results(1.7, 1.8, 1.9), true},
		{&Results{Parts: []Part{{Name: "new", Lines: results(9).Parts[0].Lines}}}, false},
	} {
		if err := recorded.check(*c.now); (err != nil) != c.worse || err != nil && !strings.Contains(err.Error(), "launch, hostname") {
			t.Errorf("%+v: %v", c.now, err)
		}
	}
}

func TestTable(t *testing.T) {
	r := results(1.2, 1.0, 1.1)
	other := results(0.5)
	other.Parts[0].Name = "logs"
	r.replace(*other)
	r.replace(*results(1.4, 0.8, 0.9))
	over := results(1.2, 1.0, 1.1)
	over.Parts[0].Name, over.Parts[0].Lines[0].Over = "sync", true
	r.replace(*over)
	table := r.table()
	for _, row := range []string{
		"| launch | hostname | 1.80 | pdsh | 2.00 | 0.90 | 0.80 to 1.40 | 1.00, met |\n",
		"| logs | hostname | 1.00 | pdsh | 2.00 | 0.50 | 0.50 to 0.50 | 1.00, met |\n",
		"| sync | hostname | 2.20 | pdsh | 2.00 | +0.20 s | +0.00 s to +0.40 s | +1.00 s, met |\n",
	} {
		if !strings.Contains(table, row) {
			t.Errorf("no %q in\n%s", row, table)
		}
	}
	if again := results(1.2); !strings.Contains(again.table(), "1.00, **not met**") {
		t.Error(again.table())
	}
}
