package examples_test

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// mlpLine matches the complete output: the configuration, and then the lines
// of the pathway2ai exercise.
var mlpLine = regexp.MustCompile(`\An-layers 4 \| dim-in \d+ \| n-classes \d+ \| dim-hidden \d+ \| train-size \d+ \| batch-size 64 \| learning-rate 0\.1 \| niters \d+\n(step \d+ \| train_loss \d+\.\d{4} \| test_loss \d+\.\d{4} \| step time \d+\.\d{2}ms\n)+\z`)

func TestMLPPrintsEveryHundredthStep(t *testing.T) {
	out := run(t, program(t, "mlp"), 1, 2, "--niters=201", "--dim-in=64", "--dim-hidden=32", "--n-classes=4", "--train-size=1000")
	if !mlpLine.MatchString(out) {
		t.Fatalf("the chief prints %q", out)
	}
	var steps []string
	var test []float64
	configuration, stepLines, _ := strings.Cut(out, "\n")
	if want := "n-layers 4 | dim-in 64 | n-classes 4 | dim-hidden 32 | train-size 1000 | batch-size 64 | learning-rate 0.1 | niters 201"; configuration != want {
		t.Errorf("the configuration is %q, want %q", configuration, want)
	}
	for line := range strings.Lines(stepLines) {
		fields := strings.Fields(line)
		steps = append(steps, fields[1])
		loss, err := strconv.ParseFloat(fields[7], 64)
		if err != nil {
			t.Fatal(err)
		}
		test = append(test, loss)
	}
	if strings.Join(steps, " ") != "0 100 200" {
		t.Errorf("steps printed: %v", steps)
	}
	if test[2] > 0.7*test[0] {
		t.Errorf("the test loss does not fall: %v", test)
	}
}

// All workers reject a batch size that is not divisible by the number of
// workers.
func TestMLPRefusesAnUnevenBatch(t *testing.T) {
	path := program(t, "mlp")
	tasks, contract := job(t, 1, 3)
	contract.Task, contract.LocalRank, contract.ListenFD = tasks[1].Task, 0, 3
	c := exec.CommandContext(t.Context(), path, "--batch-size=64")
	c.ExtraFiles = []*os.File{tasks[1].listener}
	c.Env = append(os.Environ(), contract.Environ()...)
	out, err := c.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("64 rows cannot be divided over 3 virtual workers")) {
		t.Errorf("got %v\n%s", err, out)
	}
}

// A training that is killed while it waits for a lower loss and then resumed
// stops after the same step as an uninterrupted one. Two workers stop after
// the same step too.
func TestMLPStopsEarlyAfterResume(t *testing.T) {
	path := program(t, "mlp")
	common := []string{"--niters=200", "--dim-in=16", "--dim-hidden=16", "--n-classes=4", "--train-size=128", "--batch-size=32",
		"--learning-rate=1", "--seed=1", "--virtual-workers=2", "--report-every=1", "--patience=6", "--digest"}
	ending := regexp.MustCompile(`(?s)stopped after step (\d+) \| no lower test_loss in 6 evaluations\ndigest .*`)
	out := alone(t, path, common...)
	want := ending.FindStringSubmatch(out)
	if want == nil || want[1] != "7" || !strings.Contains(out, "step 7 |") {
		t.Fatalf("without an interruption it prints\n%s\nwant that it stops after step 7, the lowest loss being that of step 1", out)
	}
	if out := run(t, path, 1, 2, common...); ending.FindString(out) != want[0] {
		t.Errorf("two workers end with\n%s\none with\n%s", ending.FindString(out), want[0])
	}

	checkpoints := append(common, "--ckpt-dir="+t.TempDir(), "--ckpt-every-steps=1")
	c := exec.CommandContext(t.Context(), path, append(checkpoints, "--slow-worker=0", "--slow-by=500ms")...)
	printed, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(printed); lines.Scan() && !strings.HasPrefix(lines.Text(), "step 4 "); {
	}
	if err := errors.Join(c.Process.Kill(), c.Wait()); err == nil || c.ProcessState.Exited() {
		t.Fatalf("it ended before it was killed: %v", err)
	}
	out = alone(t, path, checkpoints...)
	if strings.HasPrefix(out, "n-layers") || ending.FindString(out) != want[0] {
		t.Errorf("resumed it prints\n%s\nwant at its end\n%s", out, want[0])
	}
}
