package main

import (
	"testing"

	"github.com/plx-run/plx/examples/internal/exampletest"
)

// Both neighbours of nearly every sentence follow from its vector.
func TestSolves(t *testing.T) {
	if testing.Short() {
		t.Skip("trains")
	}
	arguments := []string{"--vocabulary=6", "--length=3", "--width=8", "--hidden=32", "--batch-size=32", "--steps=401"}
	out := exampletest.Build(t).Run(t, arguments...)
	accuracy := exampletest.Numbers(t, `accuracy ([^ \n]+)`, out)
	if last := accuracy[len(accuracy)-1]; last < 0.95 || accuracy[0] > 0.5 {
		t.Errorf("accuracy %v, want more than 0.95", accuracy)
	}
	if right := exampletest.Numbers(t, `neighbours of (\d+) of 200`, out); right[0] < 190 {
		t.Errorf("%v of 200 sentences", right[0])
	}
}
