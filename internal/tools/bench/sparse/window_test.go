package main

import (
	"testing"
	"time"
)

// play feeds steps of so many milliseconds and returns when the window has
// finished.
func play(w *window, from, steps int, millis float64) (next int) {
	at := time.Unix(1000, 0).Add(time.Duration(from) * time.Duration(millis*1e6))
	for i := from; i < from+steps && !w.finished; i++ {
		at = at.Add(time.Duration(millis * 1e6))
		w.step(i, millis, at)
		next = i + 1
	}
	return next
}

func TestWindow(t *testing.T) {
	for _, c := range []struct {
		name          string
		w             window
		millis        float64
		begin, counts int
	}{
		{"fast", window{warm: 20, warmFor: 10 * time.Second, most: 200, length: 20 * time.Second}, 5, 21, 200},
		{"ends by time", window{warm: 20, warmFor: 10 * time.Second, most: 200, length: 20 * time.Second}, 400, 21, 50},
		{"slow", window{warm: 20, warmFor: 10 * time.Second, most: 200, length: 20 * time.Second}, 15000, 2, 3},
		{"places variables first", window{warm: 50, most: 200, length: 20 * time.Second}, 1000, 51, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			play(&c.w, 0, 1000, c.millis)
			if !c.w.finished || c.w.begin != c.begin || len(c.w.millis) != c.counts {
				t.Errorf("finished %v, %d steps from %d; want %d from %d", c.w.finished, len(c.w.millis), c.w.begin, c.counts, c.begin)
			}
		})
	}
}

// What is changed in the middle makes the window begin again, but not for ever.
func TestWindowDisturbed(t *testing.T) {
	w := window{warm: 50, patience: 200, most: 100, length: time.Hour}
	next := play(&w, 0, 30, 10)
	w.disturbed(10)
	next = play(&w, next, 21, 10)
	if !w.open() || w.begin != 51 {
		t.Fatalf("opens at %d, want 51: the steps before count", w.begin)
	}
	next = play(&w, next, 20, 10)
	w.disturbed(10)
	next = play(&w, next, 11, 10)
	if w.begin != next || len(w.millis) != 0 {
		t.Fatalf("opens at %d with %d steps, want %d with none", w.begin, len(w.millis), next)
	}
	for !w.finished {
		w.disturbed(10)
		next = play(&w, next, 5, 10)
		if next > 1000 {
			t.Fatal("never finished")
		}
	}
}

func TestReadStep(t *testing.T) {
	for line, want := range map[string][2]float64{
		"worker:0 10.77.0.1 | step 12 | loss 9.7147 | perplexity 98204.49 | words/s 9647": {12, 9647},
		"worker:0 h1 | step 3 | loss 6.1 | words/s 2523.9":                                {3, 2523.9},
		"worker:0  h1  | step 4 | loss 6.1 | words/s 12.5":                                {4, 12.5},
		"worker:1 h2 | step 3 | loss 6.1 | words/s 2523.9":                                {},
		"worker:0 h1 ! step 3 | loss 6.1 | words/s 2523.9":                                {},
		"worker:0 h1 | step 3 | loss NaN | words/s 0":                                     {},
		"worker:0 h1 | step x | loss 1 | words/s 1":                                       {},
	} {
		number, words, ok := readStep(line)
		if ok != (want[1] > 0) || ok && (float64(number) != want[0] || words != want[1]) {
			t.Errorf("%q: %d, %v, %v", line, number, words, ok)
		}
	}
}

// What is said of variables is kept, and choice and homes are found in it.
func TestRunLine(t *testing.T) {
	f := runOf{homes: homes{}, window: window{warm: 5, patience: 100}, settle: 3}
	for _, line := range []string{
		`worker:0 h1 ! plx: variable "words" [100 8]: sparse, 3 KiB, on ps:1`,
		`worker:0 h1 ! plx: variable "classes" [100 9]: sparse, 3 KiB, on ps:0 1 KiB, ps:1 2 KiB`,
		`worker:0 h1 ! plx: P      4:    10.5ms ± 1ms in 20 steps`,
		`worker:0 h1 ! plx: choice P = 4: the fastest of 3`,
		`worker:1 h2 ! plx: choice P = 8: not the chief's`,
		`worker:0 h1 | a line of the program's`,
	} {
		if done, err := f.line(line, time.Now()); done || err != nil {
			t.Fatalf("%q: %v, %v", line, done, err)
		}
	}
	if f.said != "choice P = 4: the fastest of 3" || f.choice != 4 || len(f.homes) != 1 || f.homes["words"] != "ps:1" {
		t.Errorf("got %+v", f)
	}
}
