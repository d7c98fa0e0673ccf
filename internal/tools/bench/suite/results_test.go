package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/tools/bench/measured"
)

// results has one line whose rounds have these ratios.
func results(part string, over bool, ratios ...float64) (all measured.Samples) {
	l := line{name: "host name", goal: 1, over: over, peer: way{name: "pdsh"}}
	for _, r := range ratios {
		all = append(all, l.sample(part, measured.Facts("make it"), 1+2*r, 1, 2))
	}
	return all
}

func TestCheck(t *testing.T) {
	recorded := append(results("logs", false, 5), results("launch", false, 1.0, 1.1, 1.2)...)
	for _, c := range []struct {
		now   measured.Samples
		worse bool
	}{
		{results("launch", false, 1.1, 1.1, 1.1), false},
		{results("launch", false, 1.3, 1.3, 1.3), false}, // within the noise that was recorded
		{results("launch", false, 1.31, 1.31, 1.31), true},
		{results("launch", false, 1.1, 1.5, 1.7), false}, // within its own noise
		{results("launch", false, 1.7, 1.8, 1.9), true},
		{results("new", false, 9), false},
	} {
		if err := check(recorded, c.now); (err != nil) != c.worse || err != nil && !strings.Contains(err.Error(), "Launch/host_name") {
			t.Errorf("%+v: %v", c.now, err)
		}
	}
}

func TestTable(t *testing.T) {
	all := results("launch", false, 1.2, 1.0, 1.1)
	for _, part := range []measured.Samples{results("logs", false, 0.5), results("launch", false, 1.4, 0.8, 0.9), results("sync", true, 1.2, 1.0, 1.1)} {
		all = replace(all, part)
	}
	got := table(all)
	for _, row := range []string{
		"| launch | host name | 1.80 s (2.80 s with the launch) | pdsh | 2.00 s | 0.90 | 0.80 to 1.40 | 1.00, met |\n",
		"| logs | host name | 1.00 s (2.00 s with the launch) | pdsh | 2.00 s | 0.50 | 0.50 to 0.50 | 1.00, met |\n",
		"| sync | host name | 2.20 s (3.20 s with the launch) | pdsh | 2.00 s | +0.20 s | +0.00 s to +0.40 s | +1.00 s, met |\n",
	} {
		if !strings.Contains(got, row) {
			t.Errorf("no %q in\n%s", row, got)
		}
	}
	if again := table(results("logs", false, 1.2)); !strings.Contains(again, "1.00, **not met**") {
		t.Error(again)
	}
}

// The page shows what is recorded.
func TestPage(t *testing.T) {
	all, err := measured.Load("../../../../docs/benchmarks/suite.txt")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "<!-- suite: begin -->\n" + table(all) + "<!-- suite: end -->\n"; !strings.Contains(string(page), want) {
		t.Errorf("docs/benchmarks.md does not have\n%s", want)
	}
}

// The time of a step lies between the lines of two steps, wherever the program gets it from.
func TestTimed(t *testing.T) {
	const script = `echo "step 0 | loss 1"; echo "worker:0 | step 10 | loss 1"; sleep 0.3; echo "step 30 | x"; echo "step 40 | x"`
	took, err := timed(exec.Command("sh", "-c", script), 10, 30)
	if err != nil || took < 12*time.Millisecond { // 20 steps in 0.3 s; the first of the two lines may be read late
		t.Errorf("%v, %v", took, err)
	}
	if _, err := timed(exec.Command("sh", "-c", script), 10, 50); err == nil || !strings.Contains(err.Error(), "no lines") {
		t.Error(err)
	}
	if _, err := timed(exec.Command("sh", "-c", "echo why >&2; exit 3"), 10, 30); err == nil || !strings.Contains(err.Error(), "status 3: why") {
		t.Error(err)
	}
}
