package main

import (
	"testing"

	"github.com/plx-run/plx/examples/internal/exampletest"
)

// It learns to translate: nearly every word is right, and of new sentences
// that it translates by itself nearly each.
func TestSolves(t *testing.T) {
	if testing.Short() {
		t.Skip("trains")
	}
	nmt := exampletest.Build(t)
	for task := range translations {
		arguments := []string{"--task=" + task, "--vocabulary=6", "--length=4", "--width=12", "--hidden=24", "--batch-size=32", "--steps=501", "--learning-rate=0.01"}
		out := nmt.Run(t, arguments...)
		accuracy := exampletest.Numbers(t, `accuracy ([^ \n]+)`, out)
		if last := accuracy[len(accuracy)-1]; last < 0.95 || accuracy[0] > 0.5 {
			t.Errorf("%s: accuracy %v, want more than 0.95", task, accuracy)
		}
		if right := exampletest.Numbers(t, `translated (\d+) of 200`, out); right[0] < 190 {
			t.Errorf("%s: %v of 200 sentences", task, right[0])
		}
	}
}
