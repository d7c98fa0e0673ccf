package examples_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// With both embeddings on parameter servers or on the workers, the bits are
// those of one process. The nearest neighbours of a word have the same
// subject.
func TestWord2vecLearnsTheSameBits(t *testing.T) {
	path := program(t, "word2vec")
	arguments := []string{"--vocabulary=200", "--dimension=16", "--batch-size=60", "--steps=601", "--virtual-workers=4", "--digest"}
	want := alone(t, path, arguments...)
	losses := series(t, want, "loss")
	if len(losses) != 7 || losses[0] < 0.69 || mean(losses[4:]) > 0.4 {
		t.Errorf("losses %v, want them to fall from 0.69 to 0.4", losses)
	}
	lines := regexp.MustCompile(`(?m)^near (.*) \| (.*)$`).FindAllStringSubmatch(want, -1)
	for _, line := range lines {
		for i, word := range strings.Fields(line[2]) {
			if i%2 == 0 && word[0] != line[1][0] {
				t.Errorf("%s is near %s, of another subject", word, line[1])
			}
		}
	}
	if len(lines) != 5 {
		t.Errorf("%d words with neighbours in\n%s", len(lines), want)
	}
	for _, job := range []struct {
		servers, workers int
		arch             string
	}{{2, 2, "hybrid"}, {2, 4, "hybrid"}, {1, 3, "ps"}, {0, 2, "allreduce"}} {
		if got := run(t, path, job.servers, job.workers, append(arguments, "--arch="+job.arch)...); got != want {
			t.Errorf("%+v print\n%salone it is\n%s", job, got, want)
		}
	}
	if digest(t, want) == digest(t, alone(t, path, append(arguments, "--seed=1")...)) {
		t.Error("another seed gives the same variables")
	}
}

// Words that occur in the same sentences of a file are neighbours. If the
// batch size is not divisible by the number of workers, it is raised.
func TestWord2vecFindsPlantedNeighbours(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	pairs := [][]string{{"king", "queen"}, {"cat", "dog"}, {"car", "lorry"}, {"red", "blue"}}
	var text strings.Builder
	for range 1000 {
		k := draw.IntN(len(pairs))
		fmt.Fprintf(&text, "a%d b%d %s c%d d%d\n", k, k, pairs[k][draw.IntN(2)], k, k)
	}
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out := run(t, program(t, "word2vec"), 1, 3, "--text="+file, "--near=king,dog,car,blue", "--window=2", "--dimension=12", "--batch-size=64", "--steps=601")
	for word, want := range map[string]string{"king": "queen", "dog": "cat", "car": "lorry", "blue": "red"} {
		if !strings.Contains(out, "near "+word+" | "+want+" ") {
			t.Errorf("%s is not nearest to %s:\n%s", want, word, out)
		}
	}
	if losses := series(t, out, "loss"); losses[0] < 0.69 || losses[len(losses)-1] > 0.4 {
		t.Errorf("losses %v", losses)
	}
}
