package imagenet

import (
	"errors"
	"flag"
	"math"
	"strings"
	"testing"
)

func parsed(t *testing.T, arguments ...string) *settings {
	t.Helper()
	s := &settings{example: Example{Size: 32, Name: func() (string, error) { return "test", nil }}}
	f := flag.NewFlagSet("imagenet", flag.ContinueOnError)
	s.define(f)
	if err := f.Parse(arguments); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMistakesNameTheFlag(t *testing.T) {
	for argument, want := range map[string]string{
		"--data=x":             `--data is "x": want pictures, or --synthetic`,
		"--size=0":             "--size is 0",
		"--classes=-1":         "--classes is -1",
		"--batch-size=0":       "--batch-size is 0",
		"--epochs=0":           "--epochs is 0",
		"--steps=-1":           "--steps is -1",
		"--report-every=0":     "--report-every is 0",
		"--samples=0":          "--samples is 0",
		"--warm-up=-1":         "--warm-up is -1",
		"--learning-rate=0":    "--learning-rate is 0",
		"--weight-decay=NaN":   "--weight-decay is NaN",
		"--label-smoothing=1":  "--label-smoothing is 1",
		"--label-smoothing=-1": "--label-smoothing is -1",
	} {
		if err := parsed(t, "--synthetic").check(); err != nil {
			t.Errorf("the defaults: %v", err)
		}
		if err := parsed(t, "--synthetic", argument).check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", argument, err)
		}
	}
	if err := parsed(t).check(); err == nil {
		t.Error("neither --data nor --synthetic: no error")
	}
	for want, arguments := range map[string][]string{
		"":                          {"--validation=x"},
		`--validation is "": want`:  {"--data=x"},
		`--validation is "x": want`: {"--validation=x", "--synthetic"},
	} {
		if err := parsed(t, append(arguments, "--evaluate=ckpt")...).check(); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("--evaluate %q: %v, want %q", arguments, err, want)
		}
	}
	s := parsed(t, "--synthetic")
	s.example.Name = func() (string, error) { return "", errors.New("the network's flag is wrong") }
	if err := s.check(); err == nil || err.Error() != "the network's flag is wrong" {
		t.Errorf("a wrong flag of the network: %v", err)
	}
}

// The learning rate rises for 5 epochs to the rate for the batch size, and is
// then divided by 10 three times.
func TestSchedule(t *testing.T) {
	const epoch = 7
	rate := parsed(t, "--batch-size=1024").schedule(epoch)
	for step, want := range map[int]float64{
		0: 0.4 / 36, 17: 0.4 / 2, 35: 0.4, 30*epoch - 1: 0.4, 30 * epoch: 0.04, 60*epoch - 1: 0.04, 60 * epoch: 0.004, 80 * epoch: 0.0004, 95 * epoch: 0.0004,
	} {
		if got := rate(step); math.Abs(got-want) > 1e-12 {
			t.Errorf("step %d: rate %v, want %v", step, got, want)
		}
	}
}

func TestAbove(t *testing.T) {
	logits := []float32{1, 3, 2, 3}
	for label, want := range []int{3, 0, 2, 1} {
		if got := above(logits, label); got != want {
			t.Errorf("class %d is at place %d, want %d", label, got, want)
		}
	}
}
