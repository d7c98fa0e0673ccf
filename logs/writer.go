package logs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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
	size    int64            // length of data in bytes
	records int64            // length of the whole records in index, in bytes
	marked  time.Time        // when the newest record was written
	last    int64            // the time in the newest record, in nanoseconds since 1970; 0 means no record
	restart bool             // the next byte begins a new generation
	now     func() time.Time // time.Now, or a test's clock
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

// indexExt is appended to a spool's name for its index.
const indexExt = ".index"

// record gives the time at which the bytes from offset on were written. In the
// file it is two little-endian 64-bit words: the offset, whose top bit is the
// restart mark, and the time. Offsets and times never fall.
type record struct {
	offset  int64 // offset of the record's first byte
	time    int64 // nanoseconds since 1970
	restart bool  // a new generation of the task begins here
}

const (
	recordSize  = 16
	restartMark = 1 << 63
)

func (r record) append(b []byte) []byte {
	offset := uint64(r.offset)
	if r.restart {
		offset |= restartMark
	}
	b = binary.LittleEndian.AppendUint64(b, offset)
	return binary.LittleEndian.AppendUint64(b, uint64(r.time))
}

func decodeRecord(b []byte) record {
	offset := binary.LittleEndian.Uint64(b)
	return record{
		offset:  int64(offset &^ restartMark),
		time:    int64(binary.LittleEndian.Uint64(b[8:])),
		restart: offset&restartMark != 0,
	}
}

// readRecords reads whole records of an index from record n on, as many as fit
// into buf. It leaves an incomplete last record for later.
func readRecords(index io.ReaderAt, n int64, buf []byte) ([]record, error) {
	got, err := index.ReadAt(buf[:len(buf)/recordSize*recordSize], n*recordSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	recs := make([]record, 0, got/recordSize)
	for i := 0; i+recordSize <= got; i += recordSize {
		recs = append(recs, decodeRecord(buf[i:]))
	}
	return recs, nil
}
