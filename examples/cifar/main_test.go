package main

import (
	"flag"
	"strings"
	"testing"
)

func TestMistakesNameTheFlag(t *testing.T) {
	for argument, want := range map[string]string{
		"--samples=0":          "--samples is 0",
		"--batch-size=-3":      "--batch-size is -3",
		"--steps=-1":           "--steps is -1",
		"--learning-rate=-0.1": "--learning-rate is -0.1",
		"--learning-rate=Inf":  "--learning-rate is +Inf",
		"--clip-norm=-1":       "--clip-norm is -1",
		"--clip-norm=NaN":      "--clip-norm is NaN",
		"--dropout=1":          "--dropout is 1",
		"--dropout=-0.5":       "--dropout is -0.5",
	} {
		var s settings
		f := flag.NewFlagSet("cifar", flag.ContinueOnError)
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
