package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// TestMain makes the test's own binary the program where it is asked to be.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_THE_PROGRAM") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program runs the program alone and returns the numbers of its lines that
// stand where pattern has a group.
func program(t *testing.T, pattern string, arguments ...string) (found []float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], arguments...)
	c.Env = append(os.Environ(), "RUN_THE_PROGRAM=1", "OMP_NUM_THREADS=1", "PLX_LOG_LEVEL=error")
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, match := range regexp.MustCompile(pattern).FindAllSubmatch(out, -1) {
		x, err := strconv.ParseFloat(string(match[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, x)
	}
	if len(found) == 0 {
		t.Fatalf("no %q in\n%s", pattern, out)
	}
	return found
}

// It learns to translate: nearly every word is right, and of new sentences
// that it translates by itself nearly each.
func TestSolves(t *testing.T) {
	for task := range translations {
		arguments := []string{"--task=" + task, "--vocabulary=6", "--length=4", "--width=12", "--hidden=24", "--batch-size=32", "--steps=501", "--learning-rate=0.01"}
		accuracy := program(t, `accuracy ([^ \n]+)`, arguments...)
		if last := accuracy[len(accuracy)-1]; last < 0.95 || accuracy[0] > 0.5 {
			t.Errorf("%s: accuracy %v, want more than 0.95", task, accuracy)
		}
		if right := program(t, `translated (\d+) of 200`, arguments...); right[0] < 190 {
			t.Errorf("%s: %v of 200 sentences", task, right[0])
		}
	}
}
