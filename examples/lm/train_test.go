package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/examples/internal/exampletest"
	"github.com/plx-run/plx/trainer/data"
)

// The perplexity falls to that of the made text, and not below it, with tables
// of either kind and with a projection.
func TestLearnsTheText(t *testing.T) {
	if testing.Short() {
		t.Skip("trains")
	}
	lm, best := exampletest.Build(t), data.MakeText(0, 100).Perplexity()
	for _, more := range [][]string{nil, {"--dense"}, {"--hidden=60"}} {
		arguments := []string{"--vocabulary=100", "--width=48", "--hidden=48", "--length=10", "--samples=40", "--steps=401", "--learning-rate=0.15"}
		all := exampletest.Numbers(t, `perplexity ([^ ]+)`, lm.Run(t, append(arguments, more...)...))
		if first, last := all[0], all[len(all)-1]; first < 90 || last > 1.08*best || last < 0.93*best {
			t.Errorf("%v: perplexity %v, want it to fall to %.2f", more, all, best)
		}
	}
}

// A text whose every word tells the next is learnt by heart.
func TestLearnsFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("trains")
	}
	text := save(t, "text", strings.Repeat("one two three four\nfive six seven eight\n", 50))
	words := save(t, "words", "<S> 100\n<UNK> 0\none 50\ntwo 50\nthree 50\nfour 50\nfive 50\nsix 50\nseven 50\neight 50\n")
	out := exampletest.Build(t).Run(t, "--text="+text, "--words="+words, "--width=16", "--hidden=16", "--length=5",
		"--batch-size=8", "--samples=5", "--steps=501", "--learning-rate=0.1")
	all := exampletest.Numbers(t, `perplexity ([^ ]+)`, out)
	// After <S> there are two sentences, told apart by the one before.
	if last := all[len(all)-1]; all[0] < 7 || last > 1.05 || last < 0.999 {
		t.Errorf("perplexity %v, want it to fall from 10 to 1", all)
	}
}

// The last line is of the last step and the fifty before it, and the words of
// all lines were read in the time that the program took.
func TestLines(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const batch, length = 16, 5
	lm, begin := exampletest.Build(t), time.Now()
	out := lm.Run(t, "--steps=121", "--vocabulary=1000", "--samples=300", "--width=64", "--hidden=128",
		fmt.Sprint("--batch-size=", batch), fmt.Sprint("--length=", length), "--virtual-workers=4")
	took, sum, last := time.Since(begin).Seconds(), 0.0, -1.0
	lines := exampletest.Numbers(t, `(?:step|words/s) ([^ \n]+)`, out)
	var steps []float64
	for i := 0; i < len(lines); i += 2 {
		steps = append(steps, lines[i])
		sum += (lines[i] - last) * batch * length / lines[i+1]
		last = lines[i]
	}
	if !slices.Equal(steps, []float64{0, 20, 70, 120}) || sum > took || sum < took/8 {
		t.Errorf("steps and words/s %v: %.3f s in all, of %.3f s", lines, sum, took)
	}
}
