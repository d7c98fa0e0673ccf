package main

import (
	"flag"
	"strings"
	"testing"
)

func TestMistakesNameTheFlag(t *testing.T) {
	for argument, want := range map[string]string{
		"--vocabulary=1":      "--vocabulary is 1: want at least 2",
		"--length=0":          "--length is 0",
		"--width=0":           "--width is 0",
		"--hidden=0":          "--hidden is 0",
		"--batch-size=0":      "--batch-size is 0",
		"--steps=-1":          "--steps is -1",
		"--learning-rate=0":   "--learning-rate is 0",
		"--learning-rate=Inf": "--learning-rate is +Inf",
		"--source=x":          "--source, --target and --words: give all three",
		"--words=x":           "give all three, or none",
		"--task=shuffle":      `--task is "shuffle": want reverse or sort`,
	} {
		var s settings
		f := flag.NewFlagSet("nmt", flag.ContinueOnError)
		s.define(f)
		if err := s.check(); err != nil {
			t.Errorf("the defaults: %v", err)
		}
		if err := f.Parse([]string{argument}); err != nil {
			t.Fatal(err)
		}
		if err := s.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", argument, err)
		}
	}
}
