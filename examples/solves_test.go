package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/data"
)

// nmt learns to translate: nearly all words are correct, and nearly all new
// sentences that it translates by itself.
func TestNMTLearnsToTranslate(t *testing.T) {
	for _, task := range []string{"reverse", "sort"} {
		out := alone(t, program(t, "nmt"), "--task="+task, "--vocabulary=6", "--length=4", "--width=12", "--hidden=24",
			"--batch-size=32", "--steps=501", "--learning-rate=0.01")
		solves(t, out, `translated (\d+) of 200`)
	}
}

// skipthoughts learns to predict both neighbours of nearly every sentence from
// its vector.
func TestSkipthoughtsFindsNeighbours(t *testing.T) {
	out := alone(t, program(t, "skipthoughts"), "--vocabulary=6", "--length=3", "--width=8", "--hidden=32", "--batch-size=32", "--steps=401")
	solves(t, out, `neighbours of (\d+) of 200`)
}

// solves fails the test unless nearly all words and nearly all of 200 new
// sentences are correct.
func solves(t *testing.T, out, pattern string) {
	t.Helper()
	accuracy := numbers(t, out, `accuracy ([^ \n]+)`)
	if last := accuracy[len(accuracy)-1]; last < 0.95 || accuracy[0] > 0.5 {
		t.Errorf("accuracy %v, want more than 0.95", accuracy)
	}
	if right := numbers(t, out, pattern); right[0] < 190 {
		t.Errorf("%v of 200 sentences", right[0])
	}
}

// The perplexity of lm falls to the known perplexity of the artificial text,
// and not below it. This holds for embeddings, for ordinary variables and with
// a projection.
func TestLMReachesPerplexityOfText(t *testing.T) {
	lm, best := program(t, "lm"), data.MakeText(0, 100).Perplexity()
	perplexities := func(more ...string) []float64 {
		arguments := []string{"--vocabulary=100", "--width=48", "--hidden=48", "--length=10", "--samples=40", "--learning-rate=0.15"}
		return numbers(t, alone(t, lm, append(arguments, more...)...), `perplexity ([^ ]+)`)
	}
	all := perplexities("--steps=401")
	if first, last := all[0], all[len(all)-1]; first < 90 || last > 1.08*best || last < 0.93*best {
		t.Errorf("perplexity %v, want it to fall to %.2f", all, best)
	}
	if dense := perplexities("--steps=101", "--dense", "--find-sparse=false"); !slices.Equal(dense, all[:3]) {
		t.Errorf("perplexity %v with dense tables, want %v", dense, all[:3])
	}
	if projected := perplexities("--steps=101", "--hidden=60"); projected[0] < 90 || projected[2] > 2*best || projected[2] < 0.93*best {
		t.Errorf("perplexity %v with a projection, want it to fall towards %.2f", projected, best)
	}
}

// lm learns a text by heart in which each word determines the next.
func TestLMLearnsFileByHeart(t *testing.T) {
	save := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := save("text", strings.Repeat("one two three four\nfive six seven eight\n", 50))
	words := save("words", "<S> 100\n<UNK> 0\none 50\ntwo 50\nthree 50\nfour 50\nfive 50\nsix 50\nseven 50\neight 50\n")
	out := alone(t, program(t, "lm"), "--text="+text, "--words="+words, "--width=16", "--hidden=16", "--length=5",
		"--batch-size=8", "--samples=5", "--steps=501", "--learning-rate=0.1")
	all := numbers(t, out, `perplexity ([^ ]+)`)
	// One of two sentences follows <S>, and the sentence before determines
	// which.
	if last := all[len(all)-1]; all[0] < 7 || last > 1.05 || last < 0.999 {
		t.Errorf("perplexity %v, want it to fall from 10 to 1", all)
	}
}

// lm prints a line for the last step and for every fiftieth step before it. The
// printed words per second match the run time of the program.
func TestLMPrintsLastStepAndRate(t *testing.T) {
	const batch, length = 16, 5
	lm, begin := program(t, "lm"), time.Now()
	out := alone(t, lm, "--steps=121", "--vocabulary=1000", "--samples=300", "--width=64", "--hidden=128",
		fmt.Sprint("--batch-size=", batch), fmt.Sprint("--length=", length), "--virtual-workers=4")
	took, sum, last := time.Since(begin).Seconds(), 0.0, -1.0
	lines := numbers(t, out, `(?:step|words/s) ([^ \n]+)`)
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
