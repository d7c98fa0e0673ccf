package main

import (
	"math"
	"strings"
	"testing"

	"github.com/plx-run/plx/examples/internal/tryout"
)

func TestMain(m *testing.M) { tryout.Main(m, main) }

// The perplexity falls to that of the made text, and not below it, with tables
// of either kind and with a projection.
func TestLearnsTheText(t *testing.T) {
	best := math.Exp(made{words: 100}.entropy())
	for _, more := range [][]string{nil, {"--dense"}, {"--hidden=60"}} {
		arguments := []string{"--vocabulary=100", "--width=48", "--hidden=48", "--length=10", "--samples=40", "--steps=401", "--learning-rate=0.15"}
		all := tryout.Numbers(t, `perplexity ([^ ]+)`, append(arguments, more...)...)
		if first, last := all[0], all[len(all)-1]; first < 90 || last > 1.08*best || last < 0.93*best {
			t.Errorf("%v: perplexity %v, want it to fall to %.2f", more, all, best)
		}
	}
}

// A text whose every word tells the next is learnt by heart.
func TestLearnsFiles(t *testing.T) {
	text := save(t, "text", strings.Repeat("one two three four\nfive six seven eight\n", 50))
	words := save(t, "words", "<S> 100\n<UNK> 0\none 50\ntwo 50\nthree 50\nfour 50\nfive 50\nsix 50\nseven 50\neight 50\n")
	all := tryout.Numbers(t, `perplexity ([^ ]+)`, "--text="+text, "--words="+words, "--width=16", "--hidden=16", "--length=5",
		"--batch-size=8", "--samples=5", "--steps=501", "--learning-rate=0.1")
	// After <S> there are two sentences, told apart by the one before.
	if last := all[len(all)-1]; all[0] < 7 || last > 1.05 || last < 0.999 {
		t.Errorf("perplexity %v, want it to fall from 10 to 1", all)
	}
}
