package main

import (
	"regexp"
	"strconv"
	"time"
)

// window decides which steps of a run are measured: the steps after a warm-up.
type window struct {
	warm     int           // number of warm-up steps
	warmFor  time.Duration // time after which the warm-up ends if at least two steps were made; 0 means that only warm ends the warm-up
	most     int           // maximum number of measured steps
	length   time.Duration // time after which measuring ends if at least leastSteps steps were measured
	patience int           // number of steps after which the method disturbed has no effect
	total    int           // number of steps so far
	first    time.Time     // time at which the first step ended
	since    int           // number of steps since the warm-up began
	began    time.Time
	begin    int // number of the first measured step
	millis   []float64
	finished bool
}

// leastSteps is the minimum number of measured steps, even if they take longer
// than the window.
const leastSteps = 3

// open reports whether steps are being measured.
func (w *window) open() bool { return !w.began.IsZero() }

// step records the end of a step. It returns true if measuring begins with the
// next step.
func (w *window) step(number int, millis float64, now time.Time) (opens bool) {
	if w.first.IsZero() {
		w.first = now
	}
	w.since++
	w.total++
	if !w.open() {
		waited := w.warmFor > 0 && now.Sub(w.first) >= w.warmFor && w.since >= 2
		if w.since > w.warm || waited {
			w.began, w.begin, w.millis = now, number+1, nil
			return true
		}
		return false
	}
	w.millis = append(w.millis, millis)
	w.finished = len(w.millis) >= leastSteps && (len(w.millis) >= w.most || now.Sub(w.began) >= w.length)
	return false
}

// disturbed restarts the warm-up, with at least the given number of steps,
// because plx has moved variables. It has no effect after w.patience steps, so
// that even a run in which plx keeps moving variables is measured.
func (w *window) disturbed(steps int) {
	if w.total > w.patience {
		return
	}
	w.warm = max(w.warm-w.since, steps)
	w.began, w.since, w.warmFor = time.Time{}, 0, 0
}

// Patterns for lines that the chief prints, each line after the prefix that
// plx adds: a step, the server of a variable, and messages about moved
// variables.
var (
	stepLine   = regexp.MustCompile(`^worker:0 +\S+ +[|] step (\d+) [|] loss ([^ ]+) .*words/s ([0-9.]+)`)
	homeLine   = regexp.MustCompile(`^worker:0 +\S+ +. plx: variable "([^"]+)" .*, on (ps:\d+)$`)
	moveLine   = regexp.MustCompile(`^worker:0 +\S+ +. plx: .*(\bP +\d+:|choice P|rows moved )`)
	choiceLine = regexp.MustCompile(`choice P = (\d+)`)
)

// readStep parses the number of a step and its words per second.
func readStep(line string) (number int, words float64, ok bool) {
	found := stepLine.FindStringSubmatch(line)
	if found == nil {
		return 0, 0, false
	}
	number, err := strconv.Atoi(found[1])
	if err != nil {
		return 0, 0, false
	}
	words, err = strconv.ParseFloat(found[3], 64)
	return number, words, err == nil && words > 0
}
