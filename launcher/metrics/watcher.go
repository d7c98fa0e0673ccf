package metrics

import (
	"bytes"
	"time"
)

// The work that a Watcher does in a period is bounded. It is counted in units of about a
// nanosecond: budget of them in each period are less than half a percent of a processor.
const (
	period = 50 * time.Millisecond
	budget = 1 << 17

	lineWork  = 64   // for a line, and
	byteWork  = 4    // for each of its bytes, and
	foundWork = 1024 // if it has values, and
	matchWork = 50   // for each byte and pattern
)

// Watcher finds the values in a stream of output. It looks at every line of a program that
// prints a few thousand a second. If there are more, it leaves lines out, but not the newest
// of a period: the output may be as fast as it likes. One goroutine at a time may use it.
type Watcher struct {
	patterns []Pattern
	found    func(at time.Time, s Sample)

	until  time.Time // end of the period
	left   int       // work that may be done until then
	newest []byte    // the newest line that was left out; empty: none
	rest   []byte    // the stream's last line so far, as much as is looked at
	looked int       // number of bytes of rest that Flush has looked at
}

// NewWatcher returns a watcher that calls found for every sample.
func NewWatcher(patterns []Pattern, found func(at time.Time, s Sample)) *Watcher {
	return &Watcher{patterns: patterns, found: found}
}

// Add takes the next bytes of the stream. It does not keep p.
func (w *Watcher) Add(now time.Time, p []byte) {
	if !now.Before(w.until) {
		w.until, w.left = now.Add(period), budget
		w.lookAtNewest(now)
	}
	for len(p) > 0 && w.left > 0 {
		window := p[:min(len(p), maxLine)]
		end := lineEnd(window)
		if end < 0 {
			w.extend(window)
			w.left -= len(window)
			p = p[len(window):]
			continue
		}
		line := window[:end]
		if len(w.rest) > 0 {
			w.extend(line)
			line = w.rest
		}
		w.newest = w.newest[:0]
		if len(line) > w.looked || w.looked == 0 { // else Flush has looked at it
			w.look(now, line)
		}
		w.setRest(nil)
		p = p[end+1:]
	}
	w.leaveOut(p)
}

// Flush looks at what was left out last, and at a line that has no end yet, such as a
// progress bar.
func (w *Watcher) Flush(now time.Time) {
	w.lookAtNewest(now)
	if len(w.rest) > w.looked {
		w.looked = len(w.rest)
		w.look(now, w.rest)
	}
}

func (w *Watcher) lookAtNewest(now time.Time) {
	w.look(now, w.newest)
	w.newest = w.newest[:0]
}

func (w *Watcher) look(now time.Time, line []byte) {
	if len(line) == 0 {
		w.left--
		return
	}
	w.left -= lineWork + len(line)*(byteWork+matchWork*len(w.patterns))
	if s := Line(line, w.patterns); s != nil {
		w.left -= foundWork
		w.found(now, s)
	}
}

// leaveOut keeps the newest line of p, and what follows it.
func (w *Watcher) leaveOut(p []byte) {
	tail := p[max(0, len(p)-2*maxLine):]
	end := lastEnd(tail)
	if end < 0 {
		w.extend(tail)
		return
	}
	line := bytes.TrimRight(tail[:end], "\r\n")
	if begin := lastEnd(line); begin >= 0 || len(tail) < len(p) {
		line = line[begin+1:]
	} else {
		w.extend(line)
		line = w.rest
	}
	if len(line) > 0 {
		w.newest = append(w.newest[:0], line[:min(len(line), maxLine)]...)
	}
	w.setRest(tail[end+1:])
}

// lineEnd returns where the first line of p ends; -1: it does not. A carriage return ends a
// line that is redrawn.
func lineEnd(p []byte) int {
	end := bytes.IndexByte(p, '\n')
	if end >= 0 {
		p = p[:end]
	}
	if redrawn := bytes.IndexByte(p, '\r'); redrawn >= 0 {
		return redrawn
	}
	return end
}

// lastEnd returns where the last line of p that has an end ends; -1: there is none.
func lastEnd(p []byte) int {
	end := bytes.LastIndexByte(p, '\n')
	if redrawn := bytes.LastIndexByte(p[end+1:], '\r'); redrawn >= 0 {
		return end + 1 + redrawn
	}
	return end
}

// extend adds to the last line, whose end is not looked at if it is long.
func (w *Watcher) extend(p []byte) {
	w.rest = append(w.rest, p[:min(len(p), maxLine-len(w.rest))]...)
}

func (w *Watcher) setRest(p []byte) {
	w.rest, w.looked = w.rest[:0], 0
	w.extend(p)
}
