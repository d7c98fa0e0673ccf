package main

import (
	"flag"
	"strings"
	"testing"
)

func TestMistakesNameTheFlag(t *testing.T) {
	for argument, want := range map[string]string{
		"--images=x":          "--labels: give both",
		"--labels=x":          "--images",
		"--samples=0":         "--samples is 0",
		"--batch-size=0":      "--batch-size is 0",
		"--steps=-1":          "--steps is -1",
		"--learning-rate=0":   "--learning-rate is 0",
		"--learning-rate=NaN": "--learning-rate is NaN",
		"--learning-rate=Inf": "--learning-rate is +Inf",
	} {
		name, value, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
		f := flag.Lookup(name)
		if _, err := read(1); err != nil {
			t.Errorf("the defaults: %v", err)
		}
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		if _, err := read(1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", argument, err)
		}
		if err := f.Value.Set(f.DefValue); err != nil {
			t.Fatal(err)
		}
	}
}
