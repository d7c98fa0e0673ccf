package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"
)

// spool reads the segment files of one source (a task's stdout or stderr),
// even while a Writer appends to them.
type spool struct {
	src   Source
	dir   string
	bases []int64 // offsets at which the spool's segment files begin, ascending; as of the last listing of the folder
	open  segment // the segment that is being read
	limit int64   // offset at which reading stops; -1 means no limit

	offset    int64  // offset of the next byte to send
	gap       int64  // number of dropped bytes before offset that were not reported to the receiver yet
	buf       []byte // bytes from offset on that were read and not sent yet
	buffer    []byte // memory that buf is a slice of
	exhausted bool   // true if the current pass has found no more bytes
	ready     bool   // true if load has found the next chunk, which take will return

	current  record   // index record that covers the byte at offset
	coming   []record // records after current that were already read from the index
	indexed  int64    // number of the next record to read from the index
	scratch  [4096]byte
	headTime int64 // time of the next chunk, in nanoseconds since 1970; it never decreases
}

// openSpool opens the spool (a task's stored stdout or stderr) whose segment
// files begin at the offsets in begin. It sets the spool's position to the
// first byte that req selects.
func openSpool(dir string, src Source, begin []int64, req Request) (*spool, error) {
	all, err := openSegments(dir, src, begin)
	// A task that writes fast may have removed all listed segments, so list
	// the folder again.
	for tries := 0; errors.Is(err, fs.ErrNotExist) && tries < 10; tries++ {
		var found map[Source][]int64
		if found, err = segmentsIn(dir); err == nil {
			begin = found[src]
			all, err = openSegments(dir, src, begin)
		}
	}
	if err != nil {
		return nil, err
	}
	sp := &spool{src: src, dir: dir, bases: begin, limit: -1}
	if err := sp.position(all, req); err != nil {
		return nil, errors.Join(err, all.close())
	}
	i := all.at(sp.offset)
	sp.open = all[i]
	if err := errors.Join(all[:i].close(), all[i+1:].close(), sp.seekIndex()); err != nil {
		return nil, errors.Join(err, sp.close())
	}
	return sp, nil
}

// position sets the spool's fields offset, gap and limit as the request asks.
func (sp *spool) position(all segments, req Request) error {
	last := all[len(all)-1]
	info, err := last.data.Stat()
	if err != nil {
		return err
	}
	end := last.base + info.Size()
	if !req.Follow {
		sp.limit = end
	}
	// Bytes that no index record covers count as written at the file's
	// modification time.
	sp.current = record{time: info.ModTime().UnixNano()}
	first := all[0].base
	if offset, ok := req.from(sp.src); ok {
		sp.offset = max(offset, first)
		sp.gap = sp.offset - offset
		return nil
	}
	if sp.offset, err = start(all, req, end, info.ModTime()); err == nil && sp.offset == first {
		sp.gap = first
	}
	return err
}

// start returns the offset at which the reply to req begins, if req names no
// offsets (req.From is empty). req.TailLines and req.Since then say how much
// of the output is sent. The byte at the offset is never one that was deleted.
func start(all segments, req Request, end int64, written time.Time) (offset int64, err error) {
	offset = all[0].base
	if !req.Since.IsZero() {
		if offset, err = since(all, req.Since, end, written); err != nil {
			return 0, err
		}
	}
	if req.TailLines < 0 {
		return offset, nil
	}
	tail, err := lastLines(all, all[0].base, end, req.TailLines)
	return max(offset, tail), err
}

// since returns the offset of the first line that was not finished before time
// t.
func since(all segments, t time.Time, end int64, written time.Time) (int64, error) {
	first := all[0].base
	if written.Before(t) {
		return lastLines(all, first, end, 0)
	}
	ns := t.UnixNano()
	i, n, err := all.search(func(r record) bool { return r.time >= ns })
	if err != nil || n == 0 {
		return first, err
	}
	// An index record covers all bytes of a burst of 10 ms, so the record
	// before t may cover bytes that were written after t.
	rec, err := all.record(max(i-1, 0))
	if err != nil {
		return 0, err
	}
	if i < n && rec.time < ns-int64(burst) {
		if rec, err = all.record(i); err != nil {
			return 0, err
		}
	}
	return lastLines(all, first, min(rec.offset, end), 0)
}

// seekIndex moves the reading position in the index to the record that covers
// the byte at sp.offset.
func (sp *spool) seekIndex() error {
	i, _, err := segments{sp.open}.search(func(r record) bool { return r.offset >= sp.offset })
	sp.coming, sp.indexed = nil, max(i-1, 0)
	return err
}

// reopen opens the current segment's files again. If the files were removed,
// the spool keeps using the open ones.
func (sp *spool) reopen() error {
	again, err := openSegment(sp.dir, sp.src, sp.open.base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = sp.close()
	sp.open = again
	return err
}

// load prepares the next chunk, and reports whether one exists.
func (sp *spool) load() (bool, error) {
	if sp.ready || sp.exhausted {
		return sp.ready, nil
	}
	if len(sp.buf) == 0 {
		if err := sp.fill(); err != nil {
			return false, err
		}
	}
	if len(sp.buf) == 0 && sp.gap == 0 {
		sp.exhausted = true
		return false, nil
	}
	if err := sp.advance(); err != nil {
		return false, err
	}
	sp.ready = true
	return true, nil
}

// fill reads the bytes at sp.offset. If the open segment has no more bytes, it
// continues with the next segment.
func (sp *spool) fill() error {
	later := sp.later() // Look this up before reading: if a later segment exists now, the open segment is complete.
	if err := sp.read(); err != nil || len(sp.buf) > 0 {
		return err
	}
	moved, err := sp.move(later)
	if err != nil || !moved {
		return err
	}
	return sp.read()
}

// read reads the bytes at sp.offset from the open segment, in one system call.
func (sp *spool) read() error {
	if sp.buffer == nil {
		sp.buffer = make([]byte, maxData)
	}
	room := sp.buffer
	if sp.limit >= 0 {
		room = room[:min(int64(len(room)), max(sp.limit-sp.offset, 0))]
	}
	n, err := sp.open.data.ReadAt(room, sp.offset-sp.open.base)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ESTALE) { // on NFS, a removed file gives ESTALE
		return err
	}
	sp.buf = room[:n]
	return nil
}

// later returns the offset at which the first known segment after the open
// segment begins. It returns -1 if no later segment is known.
func (sp *spool) later() int64 {
	for _, base := range sp.bases {
		if base > sp.open.base {
			return base
		}
	}
	return -1
}

// move opens the segment that begins at sp.offset. If that segment was
// dropped, move opens the segment that begins at later, and counts the bytes
// between as a gap. It returns false if neither segment exists yet.
func (sp *spool) move(later int64) (bool, error) {
	if sp.limit >= 0 && sp.offset >= sp.limit {
		return false, nil
	}
	for _, base := range []int64{sp.offset, later} {
		if base <= sp.open.base || base < sp.offset {
			continue // The segment is already open, or no such segment is known.
		}
		next, err := openSegment(sp.dir, sp.src, base)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		err = sp.close()
		sp.open, sp.gap, sp.offset = next, base-sp.offset, base
		return true, errors.Join(err, sp.seekIndex())
	}
	return false, nil
}

// advance sets current to the index record that covers the byte at offset. A
// task writes an index record before the bytes that the record covers. advance
// reads the index after the bytes, so it finds the record.
func (sp *spool) advance() error {
	for {
		for len(sp.coming) > 0 && sp.coming[0].offset <= sp.offset {
			sp.current, sp.coming = sp.coming[0], sp.coming[1:]
		}
		if len(sp.coming) > 0 || sp.open.index == nil {
			break
		}
		recs, err := readRecords(sp.open.index, sp.indexed, sp.scratch[:])
		if err != nil {
			return err
		}
		if len(recs) == 0 {
			break
		}
		sp.coming, sp.indexed = recs, sp.indexed+int64(len(recs))
	}
	// Chunks of several sources are sent in the order of their times. The
	// chunks of one source must stay in order even if the clock was set back,
	// so the time never decreases.
	sp.headTime = max(sp.headTime, sp.current.time)
	return nil
}

// before reports whether the next chunk of sp is sent before the next chunk of
// other: by time, then by name.
func (sp *spool) before(other *spool) bool {
	if sp.headTime != other.headTime {
		return sp.headTime < other.headTime
	}
	return sp.src.file() < other.src.file()
}

// take returns the next chunk, which load has prepared. The chunk reports
// dropped bytes, or has the bytes in sp.buf that belong to one index record.
func (sp *spool) take() Chunk {
	if sp.gap > 0 {
		c := Chunk{Source: sp.src, Offset: sp.offset - sp.gap, Dropped: sp.gap, Time: time.Unix(0, sp.headTime)}
		sp.gap, sp.ready = 0, false
		return c
	}
	n := min(len(sp.buf), sendData)
	if len(sp.coming) > 0 {
		n = int(min(int64(n), sp.coming[0].offset-sp.offset))
	}
	c := Chunk{
		Source:  sp.src,
		Offset:  sp.offset,
		Time:    time.Unix(0, sp.current.time),
		Data:    sp.buf[:n],
		Restart: sp.current.restart && sp.current.offset == sp.offset,
	}
	sp.offset, sp.buf, sp.ready = sp.offset+int64(n), sp.buf[n:], false
	return c
}

// found records, after the folder was listed again, the offsets at which the
// spool's segment files begin.
func (sp *spool) found(begin []int64) { sp.bases = begin }

// beginPass makes the next load look for new bytes, even if an earlier load
// found no more.
func (sp *spool) beginPass() { sp.exhausted = false }

// checkLength returns an error if the spool's file now ends before the bytes
// that were already read.
func (sp *spool) checkLength() error {
	end, err := sp.open.end()
	if err != nil {
		return err
	}
	if end < sp.offset {
		return fmt.Errorf("has %d bytes, but %d were received before: was it replaced?", end, sp.offset)
	}
	return nil
}

func (sp *spool) close() error { return sp.open.close() }

// lastLines returns the offset at which the given number of last lines begins.
// It reads only the bytes from first to end. An unfinished last line counts as
// a line. If lines is 0, lastLines returns the offset of the unfinished last
// line, or end if there is none.
func lastLines(r io.ReaderAt, first, end int64, lines int) (int64, error) {
	if lines > 0 && end > first {
		var last [1]byte
		if _, err := r.ReadAt(last[:], end-1); err != nil {
			return 0, err
		}
		if last[0] == '\n' {
			end-- // Skip the newline at the very end, which does not begin another line.
		}
		lines--
	}
	var block [16 << 10]byte
	for end > first {
		start := max(end-int64(len(block)), first)
		b := block[:end-start]
		if _, err := r.ReadAt(b, start); err != nil {
			return 0, err
		}
		for i := bytes.LastIndexByte(b, '\n'); i >= 0; i = bytes.LastIndexByte(b[:i], '\n') {
			if lines == 0 {
				return start + int64(i) + 1, nil
			}
			lines--
		}
		end = start
	}
	return first, nil
}
