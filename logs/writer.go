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

// Writer appends what a task prints to its spool. Its methods may be called
// from any goroutine; one source must have one Writer at a time.
type Writer struct {
	mu      sync.Mutex
	src     Source
	dir     string
	share   int64 // size of a segment with its index, in bytes; 0: there is one segment without a limit
	data    *os.File
	index   *os.File
	base    int64            // offset of the first byte of the open segment
	size    int64            // length of the spool, what was dropped included
	records int64            // length of the whole records in index, in bytes
	inLine  bool             // the last byte was no newline
	marked  time.Time        // when the newest record was written; zero: the segment has none of this Writer
	last    int64            // the time in the newest record, in nanoseconds since 1970; 0 means no record
	restart bool             // the next byte begins a new generation
	now     func() time.Time // time.Now, or a test's clock
}

// burst is the time for which one index record stands.
const burst = 10 * time.Millisecond

// Create opens the spool of src in dir, which must exist, for appending. A
// spool that has bytes already is continued: its next byte begins a new
// generation of the task. The files are readable by their owner alone.
//
// The spools of both streams of the task take limit bytes of disk together, [MinLimit] or
// more: a Writer drops the oldest ones, in pieces of a sixteenth. 0 means no limit.
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
	w := &Writer{src: src, dir: dir, share: limit / perLimit, now: time.Now}
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

// create opens the files of the segment that begins at base.
func (w *Writer) create(base int64) (data, index *os.File, err error) {
	path := filepath.Join(w.dir, segmentFile(w.src, base))
	// The index first: who finds the data finds its index too. It has no
	// O_APPEND: a record that was written in part is written over.
	if index, err = os.OpenFile(path+indexExt, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, nil, err
	}
	if data, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return nil, nil, errors.Join(err, index.Close())
	}
	return data, index, nil
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

// Write appends p. When it fails, the first n bytes are in the spool and no
// others: the caller may try p[n:] again. It never fails because of the limit, and Serve
// tells of every byte that was dropped.
func (w *Writer) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(p) > 0 {
		fits := w.fits(p)
		if fits == 0 {
			if w.rotate() == nil {
				fits = w.fits(p)
			} else {
				fits = len(p) // rather too many bytes than none; the next Write tries again
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

// append writes p, which is not empty, to the open segment.
func (w *Writer) append(p []byte) (n int, err error) {
	w.mark()
	n, err = w.data.Write(p)
	w.size += int64(n)
	if n > 0 {
		w.restart, w.inLine = false, p[n-1] != '\n'
	}
	return n, err
}

// fits returns how many bytes of p belong into the open segment. 0: the next one is to
// begin. A segment ends with a line, unless the line is longer than its rest.
func (w *Writer) fits(p []byte) int {
	left := w.share - (w.size - w.base) - w.records - recordSize
	if w.share == 0 || int64(len(p)) <= left {
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

// rotate begins the next segment, and drops the oldest ones so that the task's stay
// within its limit. After an error the open segment stays in use.
func (w *Writer) rotate() error {
	data, index, err := w.create(w.size)
	if err != nil {
		return err
	}
	// Its bytes are written; an error of the disk that comes so late cannot be mended.
	_ = errors.Join(w.data.Close(), w.index.Close())
	w.data, w.index, w.base, w.records, w.marked = data, index, w.size, 0, time.Time{}
	_ = dropOldest(w.dir, w.src.Task, (perLimit-2)*w.share) // the next rotation tries again
	return nil
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
