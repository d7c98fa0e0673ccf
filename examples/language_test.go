//go:build long

package examples_test

import "testing"

// The models over words compute the same bits on one worker and on two as in
// one process, with and without parameter servers.
func TestLanguageModelsLearnTheSameBits(t *testing.T) {
	for _, c := range []struct {
		name      string
		arguments []string
	}{
		{"lm", []string{"--vocabulary=200", "--width=12", "--hidden=16", "--length=5", "--batch-size=8", "--samples=20", "--steps=30"}},
		{"lm", []string{"--vocabulary=200", "--width=12", "--hidden=12", "--length=5", "--batch-size=8", "--samples=20", "--steps=30", "--dense", "--find-sparse=false"}},
		{"nmt", []string{"--vocabulary=6", "--length=4", "--width=6", "--hidden=8", "--batch-size=8", "--steps=30"}},
		{"skipthoughts", []string{"--vocabulary=6", "--length=3", "--width=6", "--hidden=8", "--batch-size=8", "--steps=30"}},
	} {
		path, arguments := program(t, c.name), append(c.arguments, "--virtual-workers=4", "--digest")
		want := digest(t, alone(t, path, arguments...))
		for _, job := range []struct{ servers, workers int }{{1, 1}, {0, 2}, {2, 2}, {1, 3}} {
			if got := digest(t, run(t, path, job.servers, job.workers, arguments...)); got != want {
				t.Errorf("%s: %d servers and %d workers: %s, alone %s", c.name, job.servers, job.workers, got, want)
			}
		}
		if other := digest(t, alone(t, path, append(arguments, "--seed=1")...)); other == want {
			t.Errorf("%s: another seed gives the same variables", c.name)
		}
	}
}
