package main

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func save(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Words have the numbers of their lines, those that are not in the vocabulary
// one for all; each row begins at a place of its own and none ends.
func TestFiles(t *testing.T) {
	a, b := save(t, "a", "the cat sat\nthe dog\n"), save(t, "b", "  the  mat \n")
	for vocabulary, want := range map[string][]int64{
		"<S>\n<UNK>\nthe\nsat\ncat":      {2, 4, 3, 0, 2, 1, 0, 2, 1, 0},
		"the 3\n<S> 3\n<UNK> 2\ncat 1\n": {2, 3, 1, 0, 2, 1, 0, 2, 1, 0},
		"the\ncat\nsat\ndog\nmat":        {2, 3, 4, 0, 2, 5, 0, 2, 6, 0},
	} {
		s := settings{text: a + "," + b, words: save(t, "words", vocabulary), batch: 2, rate: 1,
			network: network{vocabulary: 100, drawn: 1, width: 1, hidden: 1, length: 1}}
		text, err := s.open()
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		first, second := text(0), text(1)
		for range want {
			got = append(got, first())
		}
		if !slices.Equal(got, want) || first() != want[0] || second() != want[5] {
			t.Errorf("%q: %v, want %v", vocabulary, got, want)
		}
	}
}

func TestMistakesNameTheFlag(t *testing.T) {
	short, three := save(t, "text", "one\n"), save(t, "words", "a b c\n")
	for arguments, want := range map[string]string{
		"--vocabulary=1023":               "--vocabulary is 1023: want at least 1024",
		"--samples=0":                     "--samples is 0",
		"--width=0":                       "--width is 0",
		"--hidden=0":                      "--hidden is 0",
		"--length=0":                      "--length is 0",
		"--batch-size=0":                  "--batch-size is 0",
		"--steps=-1":                      "--steps is -1",
		"--learning-rate=NaN":             "--learning-rate is NaN",
		"--text=x":                        "--text and --words",
		"--words=x":                       "--text and --words",
		"--text=missing --words=" + three: "--words: ",
		"--text=missing --samples=1 --words=" + save(t, "few", "a\nb\nc\n"):  "--text: ",
		"--samples=1 --words=" + save(t, "v", "a\nb\n") + " --text=" + short: "--text: 2 words for 32 rows",
	} {
		var s settings
		f := flag.NewFlagSet("lm", flag.ContinueOnError)
		s.define(f)
		if err := s.check(); err != nil {
			t.Errorf("the defaults: %v", err)
		}
		if err := f.Parse(strings.Fields(arguments)); err != nil {
			t.Fatal(err)
		}
		err := s.check()
		if err == nil {
			_, err = s.open()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", arguments, err, want)
		}
	}
}

// Every second word follows the one before as the rule says, or by chance;
// rows differ, and each is the same whenever it is read.
func TestMade(t *testing.T) {
	m := made{seed: 3, words: 1000}
	a, again, other := m.row(1), m.row(1), m.row(2)
	follows, same, word := 0, 0, int64(0)
	const n = 20000
	for range n {
		next := a()
		if next != again() {
			t.Fatal("a row is not the same twice")
		}
		if next < 0 || next >= 1000 {
			t.Fatalf("word %d", next)
		}
		if next == m.following(word) {
			follows++
		}
		if next == other() {
			same++
		}
		word = next
	}
	if follows < n/2-300 || follows > n*6/10 || same > n/5 {
		t.Errorf("of %d words %d follow, %d are those of another row", n, follows, same)
	}
}

// entropy is the made text's: the mean over the words of the entropy of what
// follows, weighed by how often they come.
func (m made) entropy() float64 {
	chance := make([]float64, m.words)
	for k := range chance {
		chance[k] = math.Log1p(1/float64(k+1)) / math.Log(float64(m.words+1))
	}
	often := slices.Clone(chance)
	for range 60 {
		next := make([]float64, m.words)
		for w, p := range often {
			next[w] += 0.5 * chance[w]
			next[m.following(int64(w))] += 0.5 * p
		}
		often = next
	}
	sum := 0.0
	for w, p := range often {
		for k, q := range chance {
			q *= 0.5
			if int64(k) == m.following(int64(w)) {
				q += 0.5
			}
			sum -= p * q * math.Log(q)
		}
	}
	return sum
}
