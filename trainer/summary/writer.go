package summary

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Options says how a Writer writes.
type Options struct {
	// Flush is for how long what was written may wait in memory: a process
	// that dies loses no step older than that. The time is looked at when
	// something is written and when the writer closes. 0: five seconds.
	Flush time.Duration
}

const defaultFlush = 5 * time.Second

// flushBytes bounds what waits in memory for each file.
const flushBytes = 1 << 16

// Writer writes an event file and a file of JSON lines. Its methods may be
// called by any goroutine. After an error, which names the file, it writes no
// more and returns that error again.
type Writer struct {
	interval time.Duration
	now      func() time.Time

	mu            sync.Mutex
	events, lines *file
	flushed       time.Time
	closed        bool
	err           error
}

// Open makes the folder where there is none and two new files in it.
func Open(dir string, o Options) (*Writer, error) { return open(dir, o, time.Now) }

func open(dir string, o Options, now func() time.Time) (*Writer, error) {
	if o.Flush < 0 {
		return nil, fmt.Errorf("summary: flush every %v: want 0 or more", o.Flush)
	}
	if o.Flush == 0 {
		o.Flush = defaultFlush
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("summary: make folder: %w", err)
	}
	w := &Writer{interval: o.Flush, now: now, flushed: now()}
	if err := w.create(dir); err != nil {
		return nil, fmt.Errorf("summary: %w", err)
	}
	w.events.pending = appendRecord(nil, versionEvent(w.flushed))
	if err := w.flush(); err != nil { // a viewer finds the file from the start
		w.Close()
		return nil, err
	}
	return w, nil
}

// maxNumber bounds how often a name is tried that is taken.
const maxNumber = 10000

// create makes both files with the first number that neither has.
func (w *Writer) create(dir string) error {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	for number := range maxNumber {
		end := fmt.Sprintf("%d.%s.%d.%d", w.flushed.Unix(), inName(host), os.Getpid(), number)
		w.events, err = createFile(filepath.Join(dir, "events.out.tfevents."+end))
		if err == nil {
			if w.lines, err = createFile(filepath.Join(dir, "steps."+end+".jsonl")); err == nil {
				return nil
			}
			w.events.discard()
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return err
}

// inName keeps of a host's name what a file's name can hold anywhere.
func inName(host string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, host)
}

// Paths are the names of the event file and of the file of JSON lines.
func (w *Writer) Paths() (events, lines string) { return w.events.path, w.lines.path }

// Step writes what a step reports. s.Metrics is not kept.
func (w *Writer) Step(s Scalars) error { return w.write(s.record()) }

// Metrics writes metrics alone, such as those of an evaluation after a step.
// The zero time stands for now. metrics is not kept.
func (w *Writer) Metrics(step uint64, at time.Time, metrics map[string]float64) error {
	return w.write(record{step: step, at: at, metrics: sorted(metrics)})
}

func (w *Writer) write(r record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if w.closed {
		return fmt.Errorf("summary: write step %d to %s: %w", r.step, w.events.path, fs.ErrClosed)
	}
	now := w.now()
	if r.at.IsZero() {
		r.at = now
	}
	w.events.pending = appendRecord(w.events.pending, r.event())
	w.lines.pending = r.appendLine(w.lines.pending)
	if now.Sub(w.flushed) < w.interval && max(len(w.events.pending), len(w.lines.pending)) < flushBytes {
		return nil
	}
	w.flushed = now
	return w.flush()
}

// Close writes what waits and closes the files. Closing again does nothing
// and returns what the first call did. What is written lies with the operating
// system: it survives the process, not a host that loses power.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return w.err
	}
	w.closed = true
	err := w.flush()
	for _, f := range []*file{w.events, w.lines} {
		if failed := f.Close(); failed != nil && err == nil {
			err = fmt.Errorf("summary: close %w", failed)
		}
	}
	w.err = err
	return err
}

// flush hands what waits to the operating system; the caller holds mu.
func (w *Writer) flush() error {
	for _, f := range []*file{w.events, w.lines} {
		if w.err == nil {
			w.err = f.flush()
		}
	}
	return w.err
}
