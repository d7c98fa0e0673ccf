package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/measured"
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
	step := results(0.5)
	step.Parts[0].Name, step.Parts[0].Lines[0].Unit = "step", milliseconds
	r.replace(*step)
	table := r.table()
	for _, row := range []string{
		"| launch | hostname | 1.80 s (2.80 s with the launch) | pdsh | 2.00 s | 0.90 | 0.80 to 1.40 | 1.00, met |\n",
		"| logs | hostname | 1.00 s (2.00 s with the launch) | pdsh | 2.00 s | 0.50 | 0.50 to 0.50 | 1.00, met |\n",
		"| sync | hostname | 2.20 s (3.20 s with the launch) | pdsh | 2.00 s | +0.20 s | +0.00 s to +0.40 s | +1.00 s, met |\n",
		"| step | hostname | 1000.00 ms (2000.00 ms with the launch) | pdsh | 2000.00 ms | 0.50 | 0.50 to 0.50 | 1.00, met |\n",
	} {
		if !strings.Contains(table, row) {
			t.Errorf("no %q in\n%s", row, table)
		}
	}
	if again := results(1.2); !strings.Contains(again.table(), "1.00, **not met**") {
		t.Error(again.table())
	}
}

// The time of a step lies between the lines of two steps, wherever the program gets it from.
func TestTimed(t *testing.T) {
	const script = `echo "step 0 | loss 1"; echo "worker:0 | step 10 | loss 1"; sleep 0.3; echo "step 30 | x"; echo "step 40 | x"`
	took, err := timed(exec.Command("sh", "-c", script), 10, 30)
	if err != nil || took < 15*time.Millisecond {
		t.Errorf("%v, %v", took, err)
	}
	if _, err := timed(exec.Command("sh", "-c", script), 10, 50); err == nil || !strings.Contains(err.Error(), "no lines") {
		t.Error(err)
	}
	if _, err := timed(exec.Command("sh", "-c", "echo why >&2; exit 3"), 10, 30); err == nil || !strings.Contains(err.Error(), "status 3: why") {
		t.Error(err)
	}
}
