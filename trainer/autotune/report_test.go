package autotune

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/exchange/client"
	"github.com/plx-run/plx/trainer/layout"
)

// The report covers the steps since the meeting before it. It lists the
// largest variables, and the others together on one line.
func TestReport(t *testing.T) {
	var variables []layout.Variable
	for i := range mostListed + 2 {
		variables = append(variables, dense(fmt.Sprintf("w%02d", i), 1000-10*i)) // the two smallest share the last line
	}
	variables = append(variables, table("words", 5000, 8))
	d := declare(t, 2, variables...)
	const words, loss = mostListed + 2, mostListed + 3
	j := start(t, Config{Declaration: d, Least: []int{1}, TuneAfterSteps: 10, Report: 30, Partitions: 1})
	holder := map[int]int{0: 0, mostListed: 0, mostListed + 1: 0, words: 1, loss: 0}
	add := func(variable, sent, received int) {
		j.volumes = append(j.volumes, client.Volume{Variable: variable, Holder: holder[variable], Sent: uint64(sent), Received: uint64(received)})
	}
	for step := 1; step <= 40; step++ {
		j.volumes = nil
		add(0, 2000*step, 1000*step)
		add(mostListed, 300*step, 10*step)
		add(mostListed+1, 400*step, 10*step)
		add(words, 5000*step, 7000*step)
		add(loss, 8*step, 8*step)
		j.volumes = append(j.volumes, client.Volume{Variable: 0, Holder: -1, Sent: 1 << 40}) // inside the host
		if err := j.train(step-1, step, steady, func(int) []int64 { return make([]int64, 125) }); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.Join(j.logged, "\n")
	var fields []string // lines with single spaces, because column widths may change
	for line := range strings.Lines(text) {
		fields = append(fields, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{
		"bytes per step at the busiest link, measured over 20 steps: 1 worker, 2 servers, 3 hosts",
		"words 160 kB 125 2.5 % 7.00 kB ps",
		"w00 4.00 kB - 2.00 kB ps",
		"ps:1 on cpu02 is hot: 12.0 kB per step, the others have 3.74 kB on average; 100 % of it is words",
		"(3 more) 9.60 kB - 700 B ps",
	} {
		if n := slices.Index(fields, want); n < 0 {
			t.Errorf("no line %q in\n%s", want, text)
		}
	}
	if strings.Count(text, "measured over") != 1 || strings.Contains(text, "w20") {
		t.Errorf("reported\n%s", text)
	}
}

// In one early step, the tuner counts the rows of dense gradients that are not
// zero.
func TestZeroRowsOfGradientsAreCounted(t *testing.T) {
	d := declare(t, 1, dense("large", 1000, 2), dense("small", manyRows-1, 2))
	d.Movable = false
	j := start(t, Config{Declaration: d, Report: 5, Steps: 100})
	gradient := make([]byte, 1000*2*4)
	for row := range 30 {
		gradient[row*33*8+7] = 1
	}
	for step := 101; step <= 110; step++ {
		if step == 102 {
			j.tuner.Gradient(step, 0, gradient)
			j.tuner.Gradient(step, 1, gradient[:(manyRows-1)*8])
		} else {
			j.tuner.Gradient(step, 0, make([]byte, len(gradient)))
		}
		if err := j.train(step-1, step, steady, nil); err != nil {
			t.Fatal(err)
		}
	}
	if text := strings.Join(j.logged, "\n"); !strings.Contains(text, "large looks sparse: 3 % of its gradient's rows are not zero") || strings.Contains(text, "small looks") {
		t.Errorf("said\n%s", text)
	}
}
