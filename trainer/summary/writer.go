// Package summary writes loss, metrics and timings of training steps to two
// files: an event file for TensorBoard, and a file of JSON lines for all other
// tools.
//
//	w, err := summary.Open("runs/today")
//	...
//	err = w.Step(summary.Scalars{Step: 7, Loss: 0.25, LearningRate: 0.1,
//		Metrics: map[string]float64{"accuracy": 0.9}})
//	...
//	err = w.Close()
//
// A Writer always creates new files: it overwrites no file and appends to
// none. The two files of one Writer have these names:
//
//	events.out.tfevents.<Unix seconds>.<host>.<pid>.<number>
//	steps.<Unix seconds>.<host>.<pid>.<number>.jsonl
//
// Each line of the JSON file is one object (shown here in several lines):
//
//	{"step":7,"time":1714564800.25,"loss":0.25,"learning_rate":0.1,
//	 "gradient_norm":1.5,"samples_per_second":8000,"compute_ms":10.5,
//	 "communication_ms":2,"wait_ms":0.5,"metrics":{"accuracy":0.9}}
//
// The member "time" is in Unix seconds. Values that JSON cannot write as
// numbers are the strings "NaN", "+Inf" and "-Inf". The event file holds the
// same values as float32, under the same names, but the name of a metric
// begins with "metrics/". Only the event file holds histograms and the graph
// of the model.
//
// ReadEvents reads the scalars of event files that any program has written.
// The package does not write images, and does not read the JSON lines.
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

// flushAfter limits how long the Writer keeps reports in memory, so that a
// process that dies loses only the last seconds. The Writer checks the time at
// every report and when it closes.
const flushAfter = 5 * time.Second

// flushBytes limits the size in bytes of the reports that the Writer keeps in
// memory. It applies to each of the two files separately.
const flushBytes = 1 << 16

// Writer writes an event file and a file of JSON lines. Any goroutine may call
// its methods. After a write error the Writer writes nothing more, and every
// later call returns the same error. The error names the file.
type Writer struct {
	now func() time.Time // time.Now, or the clock of a test

	mu            sync.Mutex
	events, lines *file
	flushed       time.Time // when pending records were last written to the files
	closed        bool
	err           error // the first write error, which every later call returns; nil means no error occurred
}

// Open creates a new event file and a new file of JSON lines in the folder
// dir. It creates the folder if necessary.
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
	if err := w.flush(); err != nil { // flush at once, so that TensorBoard finds the file before the first report
		w.Close() // its error is ignored, because err is the cause
		return nil, err
	}
	return w, nil
}

// maxNumber is how many file names create tries before it gives up.
const maxNumber = 10000

// create creates both files. It puts the lowest number into their names for
// which neither file exists yet.
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
			w.events.Close()         // cannot lose data, because the file is empty
			os.Remove(w.events.path) // an error is ignored, because a leftover empty file does no harm
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return err
}

// inName replaces characters of a host name that some file systems refuse in
// file names. It keeps ASCII letters, digits, dots and underscores.
func inName(host string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, host)
}

// Step writes the report of a training step. The caller may change s.Metrics
// after the call.
func (w *Writer) Step(s Scalars) error { return w.write(s.record()) }

// Evaluation writes the loss and metrics of an evaluation.
func (w *Writer) Evaluation(e Evaluation) error {
	return w.write(record{step: e.Step, fixed: []scalar{{"loss", e.Loss}}, metrics: scalars(e.Metrics)})
}

// writable returns an error if the Writer is closed or an earlier write has
// failed. The caller holds mu. what names the rejected report in the message.
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

// Close writes the reports that are still in memory and closes the files. A
// second call does nothing and returns the result of the first.
//
// Close does not call fsync: the reports survive the end of the process, but
// perhaps not a power failure.
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

// flush writes the reports that are in memory to both files. The caller holds
// mu.
func (w *Writer) flush() error {
	for _, f := range []*file{w.events, w.lines} {
		if w.err == nil {
			w.err = f.flush()
		}
	}
	return w.err
}

// file is the event file or the file of JSON lines. It keeps whole records in
// memory until flush writes them, so that readers never see half a record.
type file struct {
	storage
	path    string
	pending []byte // records that the next flush writes
	size    int64  // number of bytes written to the file
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

// add appends a whole record to the records that the next flush writes.
func (f *file) add(record []byte) { f.pending = append(f.pending, record...) }

func (f *file) flush() error {
	if len(f.pending) == 0 {
		return nil
	}
	n, err := f.Write(f.pending)
	if err != nil {
		// On a full disk, Write may have written a part of the records.
		// Truncate removes that part, so that the file stays readable.
		if cut := f.Truncate(f.size); n > 0 && cut != nil {
			err = fmt.Errorf("%w (and the last record stays cut: %v)", err, cut)
		}
		return fmt.Errorf("summary: %w", err)
	}
	f.size += int64(n)
	f.pending = f.pending[:0]
	return nil
}
