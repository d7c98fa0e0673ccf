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
	// Flush is the longest time that reports wait in memory. A process that
	// dies loses no step older than that. The writer checks the time at every
	// report and when it closes. 0 means five seconds.
	Flush time.Duration
}

const defaultFlush = 5 * time.Second

// flushBytes bounds the reports that wait in memory, for each file.
const flushBytes = 1 << 16

// Writer writes an event file and a file of JSON lines. Any goroutine may call
// its methods. After an error, which names the file, it writes nothing more and
// returns the same error again.
type Writer struct {
	interval time.Duration
	now      func() time.Time

	mu            sync.Mutex
	events, lines *file
	flushed       time.Time
	closed        bool
	err           error
}

// Open creates two new files in a folder, and the folder if necessary.
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
	w.events.add(appendRecord(nil, versionEvent(w.flushed)))
	if err := w.flush(); err != nil { // so that a viewer finds the file at once
		w.Close() // the first error says more
		return nil, err
	}
	return w, nil
}

// maxNumber bounds the number of names that are tried.
const maxNumber = 10000

// create creates both files with the first number that is free for both.
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

// inName replaces characters of a host name that some file systems refuse.
func inName(host string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, host)
}

// Paths returns the names of the event file and of the file of JSON lines.
func (w *Writer) Paths() (events, lines string) { return w.events.path, w.lines.path }

// Step writes the report of a step. It does not keep s.Metrics.
func (w *Writer) Step(s Scalars) error { return w.write(s.record()) }

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
	w.events.add(appendRecord(nil, r.event()))
	w.lines.add(r.appendLine(nil))
	if now.Sub(w.flushed) < w.interval && max(len(w.events.pending), len(w.lines.pending)) < flushBytes {
		return nil
	}
	w.flushed = now
	return w.flush()
}

// Close writes the waiting reports and closes the files. A second call does
// nothing and returns the result of the first. The reports are then with the
// operating system: they survive the process, but not a host that loses power.
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

// flush writes the waiting reports to the files. The caller holds mu.
func (w *Writer) flush() error {
	for _, f := range []*file{w.events, w.lines} {
		if w.err == nil {
			w.err = f.flush()
		}
	}
	return w.err
}
