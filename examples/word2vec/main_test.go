package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer"
)

func TestMistakesNameTheFlag(t *testing.T) {
	one := filepath.Join(t.TempDir(), "one")
	if err := os.WriteFile(one, []byte("one\none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for argument, want := range map[string]string{
		"--vocabulary=3":      "--vocabulary is 3",
		"--dimension=0":       "--dimension is 0",
		"--window=0":          "--window is 0",
		"--negatives=0":       "--negatives is 0",
		"--batch-size=0":      "--batch-size is 0",
		"--steps=-1":          "--steps is -1",
		"--learning-rate=0":   "--learning-rate is 0",
		"--learning-rate=NaN": "--learning-rate is NaN",
		"--learning-rate=Inf": "--learning-rate is +Inf",
		"--text=missing":      "--text: ",
		"--text=" + one:       "--text: " + one + ": 1 different words",
		"--near=a0,king":      `--near: "king" is not among`,
	} {
		name, value, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
		f := flag.Lookup(name)
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		if err := trainer.Alone(t.Context(), train); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", argument, err)
		}
		if err := f.Value.Set(f.DefValue); err != nil {
			t.Fatal(err)
		}
	}
}

// The defaults are valid. TestFindsTheSubjects checks that the program learns
// with them.
func TestDefaults(t *testing.T) {
	if err := flag.Set("steps", "0"); err != nil {
		t.Fatal(err)
	}
	defer flag.Set("steps", "2000") // which it takes
	if err := trainer.Alone(t.Context(), train); err != nil {
		t.Error(err)
	}
}
