package main

import (
	"regexp"
	"strconv"
	"time"
)

// window decides which steps of a run count.
type window struct {
	warm     int           // steps before it begins
	warmFor  time.Duration // or this time and two steps, where it is not 0
	most     int           // steps that count, at most
	length   time.Duration // for which they are counted, but never less than least
	patience int           // steps after which nothing disturbs any more
	total    int           // steps seen
	first    time.Time     // of the first step
	since    int           // steps seen since it began to warm up
	began    time.Time
	begin    int // number of the first step that counts
	millis   []float64
	finished bool
}

// leastSteps must count, however long they take.
const leastSteps = 3

// open says whether steps count.
func (w *window) open() bool { return !w.began.IsZero() }

// step is told of a step when it has ended, and says whether the window opens
// behind it.
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

// disturbed closes the window again: something was changed, and the steps
// around that do not count. So many more must pass before it opens. What never
// comes to rest is measured as it is.
func (w *window) disturbed(steps int) {
	if w.total > w.patience {
		return
	}
	w.warm = max(w.warm-w.since, steps)
	w.began, w.since, w.warmFor = time.Time{}, 0, 0
}

// What the chief prints, behind the prefix that plx gives it: a step, where a
// variable lives, what it says of variables that move.
var (
	stepLine   = regexp.MustCompile(`^worker:0 +\S+ +[|] step (\d+) [|] loss ([^ ]+) .*words/s ([0-9.]+)`)
	homeLine   = regexp.MustCompile(`^worker:0 +\S+ +. plx: variable "([^"]+)" .*, on (ps:\d+)$`)
	moveLine   = regexp.MustCompile(`^worker:0 +\S+ +. plx: .*(\bP +\d+:|choice P|rows moved )`)
	choiceLine = regexp.MustCompile(`choice P = (\d+)`)
)

// readStep finds the number of a step and its words per second.
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
