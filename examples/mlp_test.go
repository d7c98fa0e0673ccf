package examples_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// mlpLine is the configuration and then the exercise's line, byte for byte.
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

// A batch that the workers cannot share equally is refused, by all of them.
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
