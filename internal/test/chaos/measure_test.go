package chaos

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
)

// told returns a transcript that consists of lines "SECONDS TEXT".
func told(t *testing.T, text string) []line {
	t.Helper()
	var lines []line
	for l := range strings.Lines(strings.TrimSpace(text)) {
		var seconds float64
		at, rest, found := strings.Cut(strings.TrimSpace(l), " ")
		if _, err := fmt.Sscan(at, &seconds); err != nil || !found {
			t.Fatalf("%q: %v", l, err)
		}
		lines = append(lines, line{epoch.Add(time.Duration(seconds * float64(time.Second))), rest})
	}
	return lines
}

var epoch = time.Unix(1e9, 0)

const sum = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestMeasure(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Measures
	}{
		"a restart": {`
			1 worker:0 h1 | generation 0 | step 16 | loss 1
			1.5 worker:0 h1 | generation 0 | step 17 | loss 1
			2.25 worker:0 h1 ! failpoint wire.send: error
			2.5 plx: worker:1 on h2 was ended by signal 9 (killed)
			6 worker:0 h1 ! plx: going on after step 14, from checkpoint 000000000014-g0-5f3a9c1e of job a, made 2s ago
			6.5 worker:0 h1 | generation 1 | step 14 | loss 1
			6.6 plx: generation 1 resumes after step 14; at least 4 steps will be recomputed
			7 worker:0 h1 | generation 1 | step 15 | loss 1
			8 worker:0 h1 | digest step=16 sha256=` + sum,
			Measures{Noticed: 0.5, Back: 4.5, Redone: 4, Generations: 1, Struck: 17, Resumed: 14, Digest: sum, Told: 4}},
		"a step between the fault and the first word": {`
			1 worker:0 h1 | generation 0 | step 16 | loss 1
			2.5 worker:0 h1 | generation 0 | step 17 | loss 1
			3 plx: host h2: not heard for 5s
			9 worker:0 h2 | generation 1 | step 14 | loss 1
			9 plx: generation 1 resumes after step 14`,
			Measures{Noticed: 1, Back: 7, Redone: 4, Generations: 1, Struck: 16, Resumed: -1}},
		"two restarts": {`
			1 worker:0 h1 | generation 0 | step 16 | loss 1
			3 plx: worker:1 on h2 exited with status 0 before its work was finished
			4 worker:0 h1 | generation 1 | step 14 | loss 1
			4.5 plx: generation 1 resumes after step 14; at least 2 steps will be recomputed
			5 worker:0 h1 | generation 2 | step 7 | loss 1
			6 plx: generation 2 resumes after step 7; at least 1 step will be recomputed`,
			Measures{Noticed: 1, Back: 3, Redone: 11, Generations: 2, Struck: 16, Resumed: -1, Told: 3}},
		"nobody notices": {`
			1 worker:0 h1 | generation 0 | step 16 | loss 1
			2.5 worker:0 h1 | generation 0 | step 17 | loss 1
			3 worker:0 h1 | generation 0 | step 18 | loss 1`,
			Measures{Noticed: -1, Back: 0.5, Struck: 16, Resumed: -1, Told: -1}},
		"what is counted at the end": {`
			1 worker:0 h1 | generation 0 | step 78 | loss 1
			2.5 worker:0 h1 | generation 0 | step 79 | loss 1
			4 worker:0 h1 ! plx: made 11 checkpoints (419 KiB), 0 failed; steps held for 50µs at most, 160µs in all
			4 worker:0 h1 ! plx: warn: 5 checkpoints were not made at their steps, because another was still being written`,
			Measures{Noticed: -1, Back: 0.5, Struck: 78, Resumed: -1, Told: -1}},
		"it goes on with a warning": {`
			1 worker:0 h1 | generation 0 | step 20 | loss 1
			2.5 worker:0 h1 ! plx: warning: host h2: no space left on device
			3 worker:0 h1 | generation 0 | step 21 | loss 1
			4 worker:0 h1 ! plx: made 4 checkpoints (419 KiB), 8 failed; steps held for 50µs at most, 160µs in all`,
			Measures{Noticed: 0.5, Back: 1, Struck: 20, Resumed: -1, Told: -1, Unsaved: 8}},
		"the end": {`
			1 worker:0 h1 | generation 0 | step 20 | loss 1
			4 plx: job a: host h1: not heard for 5s`,
			Measures{Noticed: 2, Back: -1, Struck: 20, Resumed: -1, Told: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := measure(told(t, c.text), epoch.Add(2*time.Second)); got != c.want {
				t.Errorf("%+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestSayingFindsALineAfterTheFault(t *testing.T) {
	lines := told(t, `
		1 plx: worker:1 on h2 was ended
		3 worker:0 h1 ! plx: worker:1 on h2 is silent
		4 plx: host h2 is lost, says worker:0 on h1`)
	from := epoch.Add(2 * time.Second)
	any := func(string) bool { return true }
	for _, c := range []struct {
		words []string
		meant func(string) bool
		want  string
	}{
		{[]string{"host h2", "worker:0"}, own, "plx: host h2 is lost, says worker:0 on h1"},
		{[]string{"worker:1", "h2"}, own, ""},
		{[]string{"worker:1", "h2"}, any, "worker:0 h1 ! plx: worker:1 on h2 is silent"},
		{[]string{"ended"}, any, ""},
	} {
		if got, found := saying(lines, from, c.words, c.meant); got != c.want || found != (c.want != "") {
			t.Errorf("%q: %q", c.words, got)
		}
	}
}

func TestTranscript(t *testing.T) {
	script := NewTranscript()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for step := range 5 {
			text := fmt.Sprintf("worker:0 h1 | generation 0 | step %d | loss 1\n", step)
			for _, part := range []string{text[:9], text[9:]} {
				if _, err := io.WriteString(script, part); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	if !script.Await(ctx, ended, Reached(3)) {
		t.Error("step 3 was missed")
	}
	if script.Await(ctx, ended, Reached(5)) {
		t.Error("there was no step 5")
	}
	cancel()
	if script.Await(ctx, make(chan struct{}), Reached(5)) {
		t.Error("it waited for nothing")
	}
	if n := strings.Count(script.String(), "\n"); n != 5 {
		t.Errorf("%d lines of 5", n)
	}
}
