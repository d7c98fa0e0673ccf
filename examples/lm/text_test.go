package main

import (
	"flag"
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

// Words get their numbers from the vocabulary, each row of text begins at
// another place, and the vocabulary has no more words than its file.
func TestFiles(t *testing.T) {
	a, b := save(t, "a", "the cat sat\nthe dog\n"), save(t, "b", "  the  mat \n")
	s := settings{text: a + "," + b, words: save(t, "words", "cat 1\nthe 3\n<S> 3\n<UNK> 2\n"), batch: 2, vocabulary: 100, drawn: 1}
	text, about, err := s.open(0)
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	first, second, want := text(0, 0), text(1, 0), []int64{2, 3, 1, 0, 2, 1, 0, 2, 1, 0}
	for range want {
		got = append(got, first())
	}
	if !slices.Equal(got, want) || second() != want[5] || s.vocabulary != 4 {
		t.Errorf("%v of %d different words, want %v of 4", got, s.vocabulary, want)
	}
	if want := "10 words, 30.0 % of them not in the vocabulary"; about.String() != want {
		t.Errorf("%q, want %q", about, want)
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
		"--text=missing --samples=1 --words=" + save(t, "few", "a\nb\nc\n"):    "--text: ",
		"--samples=1 --words=" + save(t, "v", "a\none\n") + " --text=" + short: "--text: 2 words for 32 rows",
		"--samples=1 --words=" + save(t, "w", "a\nb\n") + " --text=" + short:   "none of its words is in the vocabulary",
		"--samples=3 --text=missing --words=" + save(t, "x", "a\nb\nc\n"):      "--samples is 3: want at most half of the 5 words of ",
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
			_, _, err = s.open(0)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", arguments, err, want)
		}
	}
}
