package logs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Writer appends one output stream of a task (stdout or stderr) to the
// stream's log files, the spool. Its methods may be called from any goroutine.
// There must be at most one Writer per stream at a time.
type Writer struct {
	mu           sync.Mutex
	src          Source
	dir          string
	segmentLimit int64 // largest size of a segment with its index, in bytes; 0 means one segment without a limit
	data         *os.File
	index        *os.File
	base         int64            // offset of the open segment's first byte in the spool
	size         int64            // total bytes written to the spool, including dropped bytes
	records      int64            // length of the complete records in the index file, in bytes
	inLine       bool             // true if the last byte written was not a newline
	marked       time.Time        // when this Writer wrote the segment's newest index record; zero if it has written no record
	last         int64            // time in the segment's newest index record, in nanoseconds since 1970; 0 if the index has no record
	restart      bool             // true if the next byte begins a new generation of the task
	now          func() time.Time // time.Now, or the clock of a test
}

// burst is the time span that one index record covers: bytes written within a
// burst have the same time.
const burst = 10 * time.Millisecond

// Create opens the spool of src in the existing folder dir for appending. If
// the spool already has bytes, the next byte begins a new generation (restart)
// of the task. Only the owner can read the files.
//
// limit is the disk space for the spools of both streams of the task together,
// in bytes; at least [MinLimit], or 0 for no limit. When the limit is reached,
// a Writer drops the oldest bytes, one sixteenth of the limit at a time.
func Create(dir string, src Source, limit int64) (*Writer, error) {
	if err := src.check(); err != nil {
		return nil, err
	}
	if limit != 0 && limit < MinLimit {
		return nil, fmt.Errorf("spool of %s: a limit of %d bytes: want %d or more", src, limit, MinLimit)
	}
	found, err := segmentsIn(dir)
	if err != nil {
		return nil, fmt.Errorf("spool of %s: %w", src, err)
	}
	w := &Writer{src: src, dir: dir, segmentLimit: limit / perLimit, now: time.Now}
	if begin := found[src]; len(begin) > 0 {
		w.base = begin[len(begin)-1]
	}
	if w.data, w.index, err = w.create(w.base); err != nil {
		return nil, fmt.Errorf("spool of %s: %w", src, err)
	}
	if err := w.resume(); err != nil {
		return nil, errors.Join(fmt.Errorf("spool of %s: %w", src, err), w.Close())
	}
	return w, nil
}

// create opens the data and index files of the segment that begins at offset
// base, and creates them if necessary.
func (w *Writer) create(base int64) (data, index *os.File, err error) {
	path := filepath.Join(w.dir, segmentFile(w.src, base))
	// Create the index before the data, so that a reader that finds the data
	// finds the index too. The index has no O_APPEND, so that the next record
	// overwrites one that was written only in part.
	if index, err = os.OpenFile(path+indexExt, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, nil, err
	}
	if data, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return nil, nil, errors.Join(err, index.Close())
	}
	return data, index, nil
}

// resume sets the Writer's positions to the ends of the data and index files.
func (w *Writer) resume() error {
	data, err := w.data.Stat()
	if err != nil {
		return err
	}
	index, err := w.index.Stat()
	if err != nil {
		return err
	}
	w.size = w.base + data.Size()
	w.restart = w.size > 0
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

// Write appends p to the spool. If it fails, exactly the first n bytes are in
// the spool, and the caller may retry with p[n:]. Reaching the size limit is
// not an error: Serve reports the bytes that were dropped.
func (w *Writer) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(p) > 0 {
		fits := w.fits(p)
		if fits == 0 {
			if w.rotate() == nil {
				fits = w.fits(p)
			} else {
				fits = len(p) // Exceed the limit rather than lose bytes. The next Write tries again to begin a new segment.
			}
		}
		m, err := w.append(p[:fits])
		n, p = n+m, p[m:]
		if err != nil {
			return n, fmt.Errorf("spool of %s: %w", w.src, err)
		}
	}
	return n, nil
}

// append writes p, which must not be empty, to the open segment and adds an
// index record if one is due.
func (w *Writer) append(p []byte) (n int, err error) {
	w.mark()
	n, err = w.data.Write(p)
	w.size += int64(n)
	if n > 0 {
		w.restart, w.inLine = false, p[n-1] != '\n'
	}
	return n, err
}

// fits returns the number of bytes of p to append to the open segment; 0 means
// that a new segment must begin. A segment ends at the end of a line, unless
// the line is longer than the space left.
func (w *Writer) fits(p []byte) int {
	left := w.segmentLimit - (w.size - w.base) - w.records - recordSize
	if w.segmentLimit == 0 || int64(len(p)) <= left {
		return len(p)
	}
	if left <= 0 {
		return 0
	}
	if i := bytes.LastIndexByte(p[:left], '\n'); i >= 0 {
		return i + 1
	}
	if w.inLine || w.size == w.base {
		return int(left)
	}
	return 0
}

// rotate begins the next segment and removes the oldest segments, so that the
// task's spools stay within the limit. If it returns an error, the open
// segment stays in use.
func (w *Writer) rotate() error {
	data, index, err := w.create(w.size)
	if err != nil {
		return err
	}
	// Ignore errors: the segment's bytes are already written, and a disk error
	// that is reported only now cannot be repaired.
	_ = errors.Join(w.data.Close(), w.index.Close())
	w.data, w.index, w.base, w.records, w.marked = data, index, w.size, 0, time.Time{}
	_ = dropOldest(w.dir, w.src.Task, (perLimit-2)*w.segmentLimit) // ignore the error: the next rotation tries again
	return nil
}

// mark writes an index record if one is due. It runs before the bytes are
// written, so that a reader that sees the bytes can also read their time.
func (w *Writer) mark() {
	now := w.now()
	if since := now.Sub(w.marked); since >= 0 && since < burst && !w.restart {
		return
	}
	// Readers search the index by time, so the time must not decrease, even if
	// the clock is set back.
	rec := record{offset: w.size, time: max(now.UnixNano(), w.last), restart: w.restart}
	// If the record cannot be written, for example because the disk is full,
	// Write still tries to write the bytes. Their time is then the time in the
	// record before.
	if _, err := w.index.WriteAt(rec.append(nil), w.records); err != nil {
		return
	}
	w.records += recordSize
	w.marked, w.last = now, rec.time
}

// Close closes the files. Further calls do nothing. Close does not sync: the
// bytes survive the end of the process, but perhaps not a crash of the host.
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

// indexExt is the file name extension of a segment's index.
const indexExt = ".index"

// record stores the time at which the bytes from offset on were written. In
// the index file it is two little-endian 64-bit words: the offset, whose top
// bit is the restart flag, and the time. Offsets and times never decrease.
type record struct {
	offset  int64 // offset in the spool of the first byte that the record covers
	time    int64 // when the bytes were written, in nanoseconds since 1970
	restart bool  // true if a new generation of the task begins at offset
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

// readRecords reads complete records of an index, beginning with record n,
// until buf is full or the index ends. It ignores an incomplete last record,
// which a later call can read.
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
