package examples_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

func TestLinearFindsTheLine(t *testing.T) {
	path := program(t, "linear")
	want := alone(t, path)
	last := want[strings.LastIndex(strings.TrimSpace(want), "\n")+1:]
	if line := "step 199 | loss 0.000000 | W 0.9996 | b 0.0010\n"; last != line {
		t.Errorf("the last line is %q, want %q", last, line)
	}
	for _, workers := range []int{1, 3} {
		if got := run(t, path, 2, workers); got != want {
			t.Errorf("%d workers print\n%salone it is\n%s", workers, got, want)
		}
	}
}

// Both ways of multiplying are correct for any number of workers, even if it
// does not divide the matrices' size or exceeds the number of rows.
func TestMatmulIsRight(t *testing.T) {
	path := program(t, "matmul")
	lines := regexp.MustCompile(`\Aby rows +\| \d workers .* \| ok\nby reduction +\| \d workers .* \| ok\n\z`)
	for _, c := range []struct {
		workers int
		size    string
	}{{1, "64"}, {2, "97"}, {3, "97"}, {3, "2"}} {
		if out := run(t, path, 0, c.workers, "--size="+c.size); !lines.MatchString(out) {
			t.Errorf("%d workers, size %s: %q", c.workers, c.size, out)
		}
	}
	if out := alone(t, path, "--size=33", "--seed=5"); !lines.MatchString(out) {
		t.Errorf("alone: %q", out)
	}
}

// An invalid flag ends a program before it trains, with an error that names
// the flag.
func TestMistakesEndThePrograms(t *testing.T) {
	for _, c := range []struct{ name, argument, want string }{
		{"mnist", "--batch-size=7000", "--batch-size is 7000: there are 6000 images"},
		{"mnist", "--learning-rate=0", "--learning-rate is 0"},
		{"cifar", "--batch-size=2001", "--batch-size is 2001: there are 2000 pictures"},
		{"cifar", "--files=missing.bin", "missing.bin"},
		{"word2vec", "--window=0", "--window is 0"},
		{"matmul", "--size=0", "--size is 0"},
		{"mlp", "--slow-worker=1", "--slow-worker is 1"},
		{"mlp", "--save=missing/weights", "--save missing/weights"},
	} {
		out, stderr, err := refused(t, program(t, c.name), c.argument)
		if err == nil || out != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%s %s: %v, prints %q\n%s", c.name, c.argument, err, out, stderr)
		}
	}
}

// docs/examples.md lists the trainer's flags with the texts that --help
// prints.
func TestDocumentedFlags(t *testing.T) {
	_, help, err := refused(t, program(t, "mnist"), "--help")
	_, flags, found := strings.Cut(help, "flags of plx's trainer:\n")
	if err != nil || !found || !strings.Contains(help, "-labels file") {
		t.Fatalf("--help: %v\n%s", err, help)
	}
	docs, err := os.ReadFile("../docs/examples.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(docs), flags) {
		t.Errorf("docs/examples.md does not have these flags:\n%s", flags)
	}
}

// refused runs a program without plx and expects it to fail at once.
func refused(t *testing.T, path string, arguments ...string) (stdout, stderr string, err error) {
	c := exec.CommandContext(t.Context(), path, arguments...)
	var out, complaint bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaint
	err = c.Run()
	return out.String(), complaint.String(), err
}
