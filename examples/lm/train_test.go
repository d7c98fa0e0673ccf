package main

import (
	"context"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
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

// The perplexity falls to that of the made text, and not below it, with tables
// of either kind and with a projection.
func TestLearnsTheText(t *testing.T) {
	best := math.Exp(made{words: 100}.entropy())
	for _, more := range [][]string{nil, {"--dense"}, {"--hidden=60"}} {
		arguments := []string{"--vocabulary=100", "--width=48", "--hidden=48", "--length=10", "--samples=40", "--steps=401", "--learning-rate=0.15"}
		all := program(t, `perplexity ([^ ]+)`, append(arguments, more...)...)
		if first, last := all[0], all[len(all)-1]; first < 90 || last > 1.08*best || last < 0.93*best {
			t.Errorf("%v: perplexity %v, want it to fall to %.2f", more, all, best)
		}
	}
}

// A text whose every word tells the next is learnt by heart.
func TestLearnsFiles(t *testing.T) {
	text := save(t, "text", strings.Repeat("one two three four\nfive six seven eight\n", 50))
	words := save(t, "words", "<S> 100\n<UNK> 0\none 50\ntwo 50\nthree 50\nfour 50\nfive 50\nsix 50\nseven 50\neight 50\n")
	all := program(t, `perplexity ([^ ]+)`, "--text="+text, "--words="+words, "--width=16", "--hidden=16", "--length=5",
		"--batch-size=8", "--samples=5", "--steps=501", "--learning-rate=0.1")
	// After <S> there are two sentences, told apart by the one before.
	if last := all[len(all)-1]; all[0] < 7 || last > 1.05 || last < 0.999 {
		t.Errorf("perplexity %v, want it to fall from 10 to 1", all)
	}
}
