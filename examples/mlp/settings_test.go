package main

import (
	"errors"
	"flag"
	"io"
	"math"
	"strings"
	"testing"
)

func TestDefaults(t *testing.T) {
	want := settings{layers: 4, dimIn: 1024, classes: 32, dimHidden: 256, trainSize: 10000, batchSize: 64, learningRate: 0.1, iterations: 1000}
	if got := defaults(t); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestMistakesNameTheFlag(t *testing.T) {
	for argument, want := range map[string]string{
		"--n-layers=0":       "--n-layers",
		"--dim-in=-1":        "--dim-in",
		"--n-classes=1":      "--n-classes",
		"--batch-size=0":     "--batch-size",
		"--train-size=63":    "--train-size",
		"--niters=-1":        "--niters",
		"--learning-rate=0":  "--learning-rate",
		"--learning-rate=x":  "learning-rate",
		"--learning-rat=0.1": "learning-rat",
		"weights":            "weights",
	} {
		_, err := parse([]string{argument}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", argument, err)
		}
	}
}

func TestRateFallsEvenly(t *testing.T) {
	s := defaults(t)
	for step, want := range map[int]float64{0: 0.1, 500: 0.065, 999: 0.03007} {
		if got := s.rate(step); math.Abs(got-want) > 1e-12 {
			t.Errorf("step %d: rate %v, want %v", step, got, want)
		}
	}
}

func TestTestSize(t *testing.T) {
	for train, want := range map[int]int{10000: 1000, 64: 6, 9: 1} {
		if got := (settings{trainSize: train}).testSize(); got != want {
			t.Errorf("%d: got %d, want %d", train, got, want)
		}
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	var out strings.Builder
	if _, err := parse([]string{"-h"}, &out); !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("got %v", err)
	}
	for _, name := range []string{"n-layers", "dim-in", "n-classes", "dim-hidden", "train-size", "batch-size", "learning-rate", "niters", "seed", "save"} {
		if !strings.Contains(out.String(), "-"+name+" ") {
			t.Errorf("help does not name -%s:\n%s", name, out.String())
		}
	}
}
