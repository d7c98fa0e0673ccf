package main

import (
	"flag"
	"math"
	"strings"
	"testing"
	"time"
)

func TestDefaults(t *testing.T) {
	want := settings{layers: 4, dimIn: 1024, classes: 32, dimHidden: 256, trainSize: 10000, batchSize: 64, learningRate: 0.1, optimizer: "sgd", iterations: 1000,
		reportEvery: 100, slowWorker: -1, slowBy: 50 * time.Millisecond}
	if got := defaults(t); *got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestMistakesNameTheFlag(t *testing.T) {
	for argument, want := range map[string]string{
		"--n-layers=0":        "--n-layers",
		"--dim-in=-1":         "--dim-in",
		"--n-classes=1":       "--n-classes",
		"--batch-size=0":      "--batch-size",
		"--train-size=63":     "--train-size",
		"--niters=-1":         "--niters",
		"--learning-rate=0":   "--learning-rate",
		"--learning-rate=Inf": "--learning-rate is +Inf",
		"--optimizer=adamw":   "adam, momentum, sgd",
		"--clip-norm=-1":      "--clip-norm",
		"--dropout=1":         "--dropout",
		"--patience=-1":       "--patience",
	} {
		var s settings
		f := flag.NewFlagSet("mlp", flag.ContinueOnError)
		s.define(f)
		if err := f.Parse([]string{argument}); err != nil {
			t.Fatal(err)
		}
		err := s.check()
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
		if got := (&settings{trainSize: train}).testSize(); got != want {
			t.Errorf("%d: got %d, want %d", train, got, want)
		}
	}
}
