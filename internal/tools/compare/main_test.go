package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFollowReadsTheChief(t *testing.T) {
	c, err := follow("sync", exec.Command("echo", `worker:0 h1 | step 0 | train_loss 3.7844 | test_loss 3.9000 | step time 2.01ms
worker:1 h1 | something else
worker:0 h1 | step 10 | train_loss 1.2 | test_loss 1.5000 | step time 2.00ms
worker:0 h1 | step 20 | train_loss 1.1 | test_loss 1.0000 | step time 2.00ms
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.steps) != 3 || c.steps[1] != 10 || c.loss[2] != 1 {
		t.Errorf("got %+v", c)
	}
	if at, ok := c.until(1.5); !ok || at != c.seconds[1] {
		t.Errorf("until 1.5: %v, %v; seconds are %v", at, ok, c.seconds)
	}
	if _, ok := c.until(0.5); ok {
		t.Error("reached a loss that it has not")
	}
	if _, err := follow("sync", exec.Command("echo", "nothing")); err == nil {
		t.Error("a curve of no points")
	}
}

func TestTableAndPlots(t *testing.T) {
	s := settings{workers: 4, slowBy: time.Second, out: t.TempDir()}
	curves := []curve{
		{"sync", []float64{0, 10}, []float64{0, 4}, []float64{3, 1}, 5 * time.Second},
		{"async", []float64{0, 10}, []float64{0, 1}, []float64{3, 2}, 6 * time.Second},
	}
	for _, want := range []string{"until loss 2.000", "| sync | 11 | 1.0000 | 5.0 | 4.0 s |", "| async | 11 | 2.0000 | 6.0 | 1.0 s |"} {
		if !strings.Contains(table(curves), want) {
			t.Errorf("no %q in\n%s", want, table(curves))
		}
	}
	if err := s.plot(curves); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"synchronisation-steps.svg", "synchronisation-time.svg"} {
		svg, err := os.ReadFile(filepath.Join(s.out, name))
		if err != nil || !strings.Contains(string(svg), "async") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
