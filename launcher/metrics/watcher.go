package metrics

import (
	"bytes"
	"time"
)

// Limits on the processor time that a Watcher uses. One unit of work is
// roughly a nanosecond. A Watcher may use budget units in each period, which
// is less than half a percent of one processor.
const (
	period = 50 * time.Millisecond
	budget = 1 << 17

	lineWork  = 64   // cost of each line
	byteWork  = 4    // additional cost of each byte of the line
	foundWork = 1024 // additional cost of a line that contains metrics
	matchWork = 50   // additional cost of each byte of the line for each pattern
)

// Watcher finds metrics in a stream of output. If a program prints up to a few
// thousand lines per second, the Watcher examines every line. If a program
// prints more, the Watcher skips lines, but still examines the newest line of
// each period. Only one goroutine at a time may use a Watcher.
type Watcher struct {
	patterns []Pattern
	found    func(at time.Time, s Sample)

	until  time.Time // end of the current period
	left   int       // units of work that are left in the current period
	newest []byte    // the newest line that was skipped; empty if none was
	rest   []byte    // first maxLine bytes of the last line of the stream, which is incomplete
	looked int       // number of bytes of rest that Flush has examined already
}

// NewWatcher returns a Watcher that calls found with the metrics of each line
// that contains metrics.
func NewWatcher(patterns []Pattern, found func(at time.Time, s Sample)) *Watcher {
	return &Watcher{patterns: patterns, found: found}
}

// Add examines the next bytes of the stream. It does not retain p.
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
		if len(line) > w.looked || w.looked == 0 { // otherwise Flush has examined the whole line before
			w.look(now, line)
		}
		w.setRest(nil)
		p = p[end+1:]
	}
	w.leaveOut(p)
}

// Flush examines the newest skipped line. It also examines the last line of
// the stream, even if that line is incomplete, such as a progress bar.
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

// leaveOut skips the lines in p. It stores the newest complete line in
// w.newest, and the incomplete line after that one in w.rest.
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

// lineEnd returns the index of the first line end in p, or -1 if there is
// none. A carriage return also counts as a line end, because programs redraw
// progress bars with it.
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

// lastEnd returns the index of the last line end in p, or -1 if there is none.
func lastEnd(p []byte) int {
	end := bytes.LastIndexByte(p, '\n')
	if redrawn := bytes.LastIndexByte(p[end+1:], '\r'); redrawn >= 0 {
		return end + 1 + redrawn
	}
	return end
}

// extend appends p to w.rest, the stream's incomplete line, which it limits to
// maxLine bytes.
func (w *Watcher) extend(p []byte) {
	w.rest = append(w.rest, p[:min(len(p), maxLine-len(w.rest))]...)
}

func (w *Watcher) setRest(p []byte) {
	w.rest, w.looked = w.rest[:0], 0
	w.extend(p)
}
