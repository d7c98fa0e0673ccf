package live

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/logs"
)

func chunk(task, text string) logs.Chunk {
	return logs.Chunk{Source: logs.Source{Task: task}, Data: []byte(text), Time: time.Now()}
}

func (l *Line) text() string { return strings.Join(l.Parts(false), " | ") }

// The status line of a training shows its step, metrics, speed and remaining
// time.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil)
		if parts := l.Parts(false); parts != nil {
			t.Errorf("before the job runs: %q", parts)
		}
		l.Update(func(s *State) { s.Doing = "running" })
		l.Tasks(0, 2, 2)
		l.Tasks(1, 2, 2)
		says := func(want string) {
			t.Helper()
			if got := l.text(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		says("running 0s | 4 tasks")
		for i := range 30 {
			l.Chunk("h1", chunk("worker:0", fmt.Sprintf("step %d/200 loss: %.3f\n", i+1, 1/float64(i+1))))
			l.Chunk("h2", chunk("worker:1", fmt.Sprintf("step %d/200 loss: %.3f\n", i, 7.0)))
			time.Sleep(time.Second)
		}
		says("running 30s | step 30/200 | loss 0.033 | 1 steps/s | 2m50s left | 4 tasks")
		l.Tasks(1, 1, 2)
		l.Update(func(s *State) { s.Restarts, s.Warnings = 1, 2 })
		time.Sleep(11 * time.Second)
		says("running 41s | 3 of 4 tasks | step 30/200 | loss 0.033 | 1 steps/s | 2m50s left | no line for 12s | 1 restart | 2 warnings")
		time.Sleep(2 * time.Hour) // an old rate is no longer shown
		says("running 2h00m | 3 of 4 tasks | step 30/200 | loss 0.033 | no line for 2h00m | 1 restart | 2 warnings")
		l.Chunk("h1", chunk("worker:0", "step 3/200 loss: nan\n")) // the training has started from the beginning
		says("running 2h00m | 3 of 4 tasks | step 29/200 | loss NaN | 1 restart | 2 warnings")
	})
}

// Metrics of the user's own patterns are shown.
func TestPatterns(t *testing.T) {
	patterns, err := metrics.ParsePatterns([]string{"cost=COST ([0-9.]+)", "loss=LOSS ([0-9.]+)"})
	if err != nil {
		t.Fatal(err)
	}
	l := New(patterns)
	l.Update(func(s *State) { s.Doing = "running" })
	l.Chunk("h1", chunk("worker:0", "COST 7 LOSS 3\n"))
	if got := l.text(); got != "running | loss 3 | cost 7" {
		t.Errorf("%q", got)
	}
}

// Control characters and extreme numbers in a program's metrics cannot corrupt
// the status line.
func TestMetricTextIsEscaped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil)
		l.Update(func(s *State) { s.Doing = "run\x1b[2J" })
		l.Report("worker:0", metrics.Sample{{Name: "loss\x1b[31m\n", Number: metrics.Number(math.Inf(1))}, {Name: metrics.Step, Number: 1e300}, {Name: metrics.Steps, Number: -1}, {Name: metrics.Rate, Number: 1e-300}}, time.Now())
		if got := l.text(); strings.ContainsAny(got, "\x1b\n") || !strings.Contains(got, "+Inf") {
			t.Errorf("%q", got)
		}
	})
}

// Of very many lines, the last one is shown. An unfinished line is searched
// too, as progress bars do not end their lines.
func TestNewestLineOfOutputFloodCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil)
		l.Update(func(s *State) { s.Doing = "running" })
		for i := range 100_000 {
			l.Chunk("h1", chunk("worker:0", fmt.Sprintf("step %d\n", i)))
		}
		if got := l.text(); got != "running | step 99999" {
			t.Errorf("%q", got)
		}
		l.Chunk("h1", chunk("worker:0", strings.Repeat("x", 100_000)+"\nstep 7"))
		if got := l.text(); got != "running | step 7" {
			t.Errorf("%q", got)
		}
		if got := l.Task("worker:0").Line; got != "step 7" {
			t.Errorf("last line %q", got)
		}
		for _, s := range l.streams {
			if n := len(s.tail); n > maxShown {
				t.Errorf("%d bytes are kept", n)
			}
		}
	})
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m01s", 3*time.Hour + 5*time.Minute: "3h05m",
		53 * time.Hour: "2d5h", math.MaxInt64: "?", -1: "?",
	} {
		if got := Short(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// The training loss is preferred to the validation loss, in whatever order the
// metrics arrive.
func TestLossOfTraining(t *testing.T) {
	for want, names := range map[string][]string{
		"loss": {"val_loss", "train_loss", "loss"}, "train_loss": {"test_loss", "train_loss"}, "eval_loss": {"step", "eval_loss", "val_loss"},
	} {
		l := New(nil)
		l.Update(func(s *State) { s.Doing = "running" })
		var s metrics.Sample
		for _, name := range names {
			s = append(s, metrics.Value{Name: name, Number: 7})
		}
		l.Report("worker:0", s, time.Now())
		if got := l.text(); !strings.Contains(got+" ", "| "+want+" 7") {
			t.Errorf("%v: %q, want %s", names, got, want)
		}
	}
}
