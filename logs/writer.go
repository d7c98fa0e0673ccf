package logs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Writer appends what a task prints to its spool. Its methods may be called
// from any goroutine; one source must have one Writer at a time.
type Writer struct {
	mu      sync.Mutex
	src     Source
	data    *os.File
	index   *os.File
	size    int64     // bytes in data
	records int64     // bytes of whole records in index
	marked  time.Time // when the newest record was due
	last    int64     // the time of the newest record, ns
	restart bool      // the next byte begins a new generation
	now     func() time.Time
}

// burst is the time for which one index record stands.
const burst = 10 * time.Millisecond

// Create opens the spool of src in dir, which must exist, for appending. A
// spool that has bytes already is continued: its next byte begins a new
// generation of the task. The files are readable by their owner alone.
func Create(dir string, src Source) (*Writer, error) {
	if err := src.check(); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, src.file())
	// The index first: who finds the data finds its index too. It has no
	// O_APPEND: a record that was written in part is written over.
	index, err := os.OpenFile(path+indexExt, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("spool of %s: %w", src, err)
	}
	data, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("spool of %s: %w", src, err), index.Close())
	}
	w := &Writer{src: src, data: data, index: index, now: time.Now}
	if err := w.resume(); err != nil {
		return nil, errors.Join(fmt.Errorf("spool of %s: %w", src, err), w.Close())
	}
	return w, nil
}

// resume finds the ends of both files.
func (w *Writer) resume() error {
	data, err := w.data.Stat()
	if err != nil {
		return err
	}
	index, err := w.index.Stat()
	if err != nil {
		return err
	}
	w.size, w.restart = data.Size(), data.Size() > 0
	w.records = index.Size() / recordSize * recordSize
	if w.records == 0 {
		return nil
	}
	var b [recordSize]byte
	if _, err := w.index.ReadAt(b[:], w.records-recordSize); err != nil {
		return err
	}
	w.last = decodeRecord(b[:]).time
	return nil
}

// Write appends p. When it fails, the first n bytes are in the spool and no
// others: the caller may try p[n:] again. Bytes are never dropped unsaid.
func (w *Writer) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	w.mark()
	n, err = w.data.Write(p)
	w.size += int64(n)
	if n > 0 {
		w.restart = false
	}
	if err != nil {
		return n, fmt.Errorf("spool of %s: %w", w.src, err)
	}
	return n, nil
}

// mark writes an index record when one is due. It comes before its bytes, so
// that whoever can read the bytes can read their time.
func (w *Writer) mark() {
	now := w.now()
	if since := now.Sub(w.marked); since >= 0 && since < burst && !w.restart {
		return
	}
	// Readers search the index, so a clock set back must not show in it.
	rec := record{offset: w.size, time: max(now.UnixNano(), w.last), restart: w.restart}
	// A full disk must not keep the bytes from being tried: without its
	// record the burst only counts as part of the one before.
	if _, err := w.index.WriteAt(rec.append(nil), w.records); err != nil {
		return
	}
	w.records += recordSize
	w.marked, w.last = now, rec.time
}

// Size returns the length of the spool in bytes, earlier generations included.
func (w *Writer) Size() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size
}

// Close closes the files. It may be called again. It does not force the bytes
// to the disk: they survive the process, not a crash of the host.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.data == nil {
		return nil
	}
	err := errors.Join(w.data.Close(), w.index.Close())
	w.data, w.index = nil, nil
	return err
}
