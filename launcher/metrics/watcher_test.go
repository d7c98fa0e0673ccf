package metrics

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// collector returns a Watcher and the list to which it adds the samples that
// it finds.
func collector(patterns ...Pattern) (*Watcher, *[]string) {
	var all []string
	return NewWatcher(patterns, func(_ time.Time, s Sample) { all = append(all, text(s)) }), &all
}

// All lines of a slow program are found, no matter how the stream is split
// into parts.
func TestWatcherSeesEveryLine(t *testing.T) {
	const stream = "loss 1\nno value\r\n\nstep 2\nloss: 3, acc: 4\r\n 10%|#    | 1/10 [00:01<00:09,  1.00it/s]\r 20%|##   | 2/10 [00:02<00:08,  1.00it/s]\r\n{\"loss\": 5}\nloss 6"
	want := []string{"loss=1", "step=2", "acc=4 loss=3", "step=1 steps=10 steps_per_second=1", "step=2 steps=10 steps_per_second=1", "loss=5", "loss=6"}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		w, got := collector()
		for rest := []byte(stream); len(rest) > 0; {
			n := 1 + random.IntN(min(len(rest), 60))
			w.Add(start, rest[:n])
			rest = rest[n:]
		}
		w.Flush(start)
		w.Flush(start) // neither Flush nor the end of the line finds the same metrics again
		w.Add(start, []byte("\n"))
		if !slices.Equal(*got, want) {
			t.Fatalf("seed %d: %q", seed, *got)
		}
	}
}

// Of 100,000 lines per second with metrics, the Watcher examines a few
// thousand. The newest value is never older than one period.
func TestWatcherIsBounded(t *testing.T) {
	const lines, perRead = 100_000, 10
	pattern, err := parsePattern("mine=mine ([0-9]+)")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, format string
		patterns     []Pattern
		most         int
	}{
		{"plain", "step %d | loss 0.31\n", nil, 20 * (budget/foundWork + 2)},
		{"progress bar", " 10%%|#    | %d/1000000 [00:01<00:09,  1.00it/s]\r", nil, 20 * (budget/foundWork + 2)},
		{"pattern", "step %d mine 7\n", []Pattern{pattern}, 20 * (budget/(foundWork+len("step 1 mine 7")*matchWork) + 2)},
	} {
		newest, found, stale := 0.0, 0, time.Duration(0)
		var changed time.Time
		w := NewWatcher(c.patterns, func(at time.Time, s Sample) {
			n, _ := s.Get(Step)
			newest, changed = float64(n), at
			found++
		})
		now := start
		for i := 0; i < lines; i += perRead {
			var chunk strings.Builder
			for k := range perRead {
				fmt.Fprintf(&chunk, c.format, i+k+1)
			}
			now = now.Add(perRead * time.Second / lines)
			w.Add(now, []byte(chunk.String()))
			if !changed.IsZero() {
				stale = max(stale, now.Sub(changed))
			}
		}
		if found > c.most || found < 20 {
			t.Errorf("%s: it has looked at %d of %d lines, at most %d are allowed", c.name, found, lines, c.most)
		}
		if stale > period {
			t.Errorf("%s: the newest value was %v old", c.name, stale)
		}
		w.Flush(now)
		if newest != lines {
			t.Errorf("%s: the last step is %v", c.name, newest)
		}
	}
}

// Lines without metrics cost less work, and a long line is not stored as a
// whole.
func TestLinesWithoutMetricsCostLess(t *testing.T) {
	w, got := collector()
	long := strings.Repeat("x", 3*maxLine)
	for range 100 {
		w.Add(start, []byte(long))
		if len(w.rest) > maxLine || cap(w.rest) > 2*maxLine {
			t.Fatalf("%d bytes of a line are kept", len(w.rest))
		}
	}
	w.Add(start, []byte("\nloss 1\nloss "))
	w.Add(start.Add(period), []byte("2\n"+long+"\nloss 3\n"))
	w.Add(start.Add(2*period), []byte(strings.Repeat("\n", 10*budget)+"loss 4\nloss 5"))
	w.Add(start.Add(2*period), []byte("6\n"))
	w.Add(start.Add(2*period), []byte("\r\n"))
	w.Flush(start.Add(2 * period))
	if want := []string{"loss=1", "loss=2", "loss=3", "loss=56"}; !slices.Equal(*got, want) {
		t.Errorf("%q, want %q", *got, want)
	}
}

func BenchmarkWatcher(b *testing.B) {
	for name, line := range lines {
		b.Run(name, func(b *testing.B) {
			chunk := []byte(strings.Repeat(line, 64<<10/len(line)))
			w := NewWatcher(nil, func(time.Time, Sample) {})
			b.SetBytes(int64(len(chunk)))
			for b.Loop() {
				w.Add(time.Now(), chunk)
			}
		})
	}
}
