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
	return logs.Chunk{Source: logs.Source{Task: task}, Data: []byte(text)}
}

func (l *Line) text() string { return strings.Join(l.Parts(false), " | ") }

// A training says where it is, what it has reached, how fast it is and how long it takes.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
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
		time.Sleep(2 * time.Hour) // a rate that was is none that is
		says("running 2h00m | 3 of 4 tasks | step 30/200 | loss 0.033 | no line for 2h00m | 1 restart | 2 warnings")
		l.Chunk("h1", chunk("worker:0", "step 3/200 loss: nan\n")) // the job has begun again
		says("running 2h00m | 3 of 4 tasks | step 29/200 | loss NaN | 1 restart | 2 warnings")
	})
}

// What a program writes steers nothing: it is a number behind a name.
func TestStrangersValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		l.Update(func(s *State) { s.Doing = "run\x1b[2J" })
		l.Report("worker:0", metrics.Sample{{Name: "loss\x1b[31m\n", Number: metrics.Number(math.Inf(1))}, {Name: metrics.Step, Number: 1e300}, {Name: metrics.Steps, Number: -1}, {Name: metrics.Rate, Number: 1e-300}}, time.Now())
		if got := l.text(); strings.ContainsAny(got, "\x1b\n") || !strings.Contains(got, "+Inf") {
			t.Errorf("%q", got)
		}
	})
}

// Of a flood of lines only the newest of each look are looked at, and the last one counts.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		l.Update(func(s *State) { s.Doing = "running" })
		for i := range 100_000 {
			l.Chunk("h1", chunk("worker:0", fmt.Sprintf("step %d\n", i)))
			for _, s := range l.streams {
				if n := len(s.text); n > maxText {
					t.Fatalf("%d bytes are kept", n)
				}
			}
		}
		l.Chunk("h1", chunk("worker:0", strings.Repeat("x", 3*maxText)+"\nstep 7")) // has no end: it may be 70
		if got := l.text(); got != "running | step 0" { // of the first line
			t.Errorf("%q", got)
		}
		l.Chunk("h1", chunk("worker:0", "77\nstep 8"))
		if got := l.text(); got != "running | step 777" {
			t.Errorf("%q", got)
		}
	})
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m01s", 3*time.Hour + 5*time.Minute: "3h05m",
		53 * time.Hour: "2d5h", math.MaxInt64: "?", -1: "?",
	} {
		if got := short(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
