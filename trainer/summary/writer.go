// Package summary writes what a training reports of its steps, twice: as an
// event file for TensorBoard, and as lines of JSON for every other tool.
//
//	w, err := summary.Open("runs/today")
//	...
//	err = w.Step(summary.Scalars{Step: 7, Loss: 0.25, LearningRate: 0.1,
//		Metrics: map[string]float64{"accuracy": 0.9}})
//	...
//	err = w.Close()
//
// The files are always new: the writer overwrites no file and appends to none.
// The two files of one writer have the names:
//
//	events.out.tfevents.<Unix seconds>.<host>.<pid>.<number>
//	steps.<Unix seconds>.<host>.<pid>.<number>.jsonl
//
// A line is one object (shown here in several lines):
//
//	{"step":7,"time":1714564800.25,"loss":0.25,"learning_rate":0.1,
//	 "gradient_norm":1.5,"samples_per_second":8000,"compute_ms":10.5,
//	 "communication_ms":2,"wait_ms":0.5,"metrics":{"accuracy":0.9}}
//
// Time is in Unix seconds. Values that JSON cannot write as numbers are the
// strings "NaN", "+Inf" and "-Inf". The event file holds the same values as
// float32, under the same names. The name of a metric begins with "metrics/". The
// event file alone holds histograms and the graph of the model.
//
// ReadEvents reads the scalars of event files, whoever has written them.
//
// The package writes no images. It reads no files of JSON lines.
package summary

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// flushAfter is the longest time that reports wait in memory. A process that
// dies loses no step older than that. The writer checks the time at every
// report and when it closes.
const flushAfter = 5 * time.Second

// flushBytes bounds the reports that wait in memory, for each file.
const flushBytes = 1 << 16

// Writer writes an event file and a file of JSON lines. Any goroutine may call
// its methods. After an error, which names the file, it writes nothing more and
// returns the same error again.
type Writer struct {
	now func() time.Time // time.Now, or a test's clock

	mu            sync.Mutex
	events, lines *file
	flushed       time.Time // when pending records were last written to the files
	closed        bool
	err           error // the first error; nil means none
}

// Open creates two new files in a folder, and the folder if necessary.
func Open(dir string) (*Writer, error) { return open(dir, time.Now) }

func open(dir string, now func() time.Time) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("summary: make folder: %w", err)
	}
	w := &Writer{now: now, flushed: now()}
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
			w.events.Close()         // nothing was written to it
			os.Remove(w.events.path) // an empty file harms nobody
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

// Step writes the report of a step. It does not keep s.Metrics.
func (w *Writer) Step(s Scalars) error { return w.write(s.record()) }

// Evaluation writes the report of an evaluation.
func (w *Writer) Evaluation(e Evaluation) error {
	return w.write(record{step: e.Step, fixed: []scalar{{"loss", e.Loss}}, metrics: scalars(e.Metrics)})
}

// writable returns why nothing can be written any more. The caller holds mu.
func (w *Writer) writable(what string) error {
	if w.err == nil && w.closed {
		return fmt.Errorf("summary: write %s to %s: %w", what, w.events.path, fs.ErrClosed)
	}
	return w.err
}

func (w *Writer) write(r record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.writable(fmt.Sprintf("step %d", r.step)); err != nil {
		return err
	}
	now := w.now()
	if r.at.IsZero() {
		r.at = now
	}
	w.events.add(appendRecord(nil, r.event()))
	w.lines.add(r.appendLine(nil))
	if now.Sub(w.flushed) < flushAfter && max(len(w.events.pending), len(w.lines.pending)) < flushBytes {
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

// file is one of the two files. Whole records wait in pending, so that no
// reader sees half a record.
type file struct {
	storage
	path    string
	pending []byte // whole records that are not written to the file yet
	size    int64  // bytes written to the file
}

type storage interface {
	io.WriteCloser
	Truncate(size int64) error
}

func createFile(path string) (*file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	return &file{storage: f, path: path}, nil
}

// add adds a whole record, which flush writes.
func (f *file) add(record []byte) { f.pending = append(f.pending, record...) }

func (f *file) flush() error {
	if len(f.pending) == 0 {
		return nil
	}
	n, err := f.Write(f.pending)
	if err != nil {
		// A full disk may have accepted part of the record. Without that part
		// the file remains readable.
		if cut := f.Truncate(f.size); n > 0 && cut != nil {
			err = fmt.Errorf("%w (and the last record stays cut: %v)", err, cut)
		}
		return fmt.Errorf("summary: %w", err)
	}
	f.size += int64(n)
	f.pending = f.pending[:0]
	return nil
}
