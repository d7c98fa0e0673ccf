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

// spool reads the files of one source, also while they grow.
type spool struct {
	src   Source
	dir   string
	begin []int64 // where the segments begin that the folder had when it was last read, in order
	open  segment // the segment that is being read
	limit int64   // offset at which to stop; -1 means never

	offset int64  // offset of the next byte to send
	gap    int64  // bytes before offset that were dropped, which the receiver is not told yet
	buf    []byte // bytes read from offset on and not yet sent
	store  []byte // memory of buf
	dry    bool   // the present pass found no more bytes
	ready  bool   // the next chunk is known

	current  record   // covers the byte at offset
	coming   []record // records after current that were read already
	indexed  int64    // number of the next record to read from the index
	scratch  [4096]byte
	headTime int64 // time of the next chunk, in nanoseconds since 1970; it never falls
}

// openSpool opens a spool whose segments begin at begin, and finds its first wanted
// byte.
func openSpool(dir string, src Source, begin []int64, req Request) (*spool, error) {
	all, err := openSegments(dir, src, begin)
	// A task that writes fast may have dropped all segments that were found.
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
	sp := &spool{src: src, dir: dir, begin: begin, limit: -1}
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

// position sets offset, gap and limit.
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
	// The time of bytes that no record covers.
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

// start returns the first byte that a first request wants of the spool, among those that
// were not dropped.
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

// since returns the start of the first line not finished before t.
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
	// The burst before may have lasted until after t.
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

// seekIndex moves to the first record that covers the byte at offset.
func (sp *spool) seekIndex() error {
	i, _, err := segments{sp.open}.search(func(r record) bool { return r.offset >= sp.offset })
	sp.coming, sp.indexed = nil, max(i-1, 0)
	return err
}

// reopen opens the segment's files again. If they were removed, those that are open stay
// in use.
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

// load finds the next chunk and reports whether there is one.
func (sp *spool) load() (bool, error) {
	if sp.ready || sp.dry {
		return sp.ready, nil
	}
	if len(sp.buf) == 0 {
		if err := sp.fill(); err != nil {
			return false, err
		}
	}
	if len(sp.buf) == 0 && sp.gap == 0 {
		sp.dry = true
		return false, nil
	}
	if err := sp.advance(); err != nil {
		return false, err
	}
	sp.ready = true
	return true, nil
}

// fill reads the bytes at offset. If the segment has no more, it goes on with the next.
func (sp *spool) fill() error {
	later := sp.later() // if there is one, the open segment has all its bytes
	if err := sp.read(); err != nil || len(sp.buf) > 0 {
		return err
	}
	moved, err := sp.move(later)
	if err != nil || !moved {
		return err
	}
	return sp.read()
}

// read reads the bytes at offset from the open segment, in one system call.
func (sp *spool) read() error {
	if sp.store == nil {
		sp.store = make([]byte, maxData)
	}
	room := sp.store
	if sp.limit >= 0 {
		room = room[:min(int64(len(room)), max(sp.limit-sp.offset, 0))]
	}
	n, err := sp.open.data.ReadAt(room, sp.offset-sp.open.base)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ESTALE) { // stale: removed, on NFS
		return err
	}
	sp.buf = room[:n]
	return nil
}

// later returns where the first segment after the open one begins, as far as it is
// known. -1: none is known.
func (sp *spool) later() int64 {
	for _, base := range sp.begin {
		if base > sp.open.base {
			return base
		}
	}
	return -1
}

// move opens the segment that begins at offset. If that one was dropped, it opens the one
// that begins at later, and counts the bytes between. It reports false if there is
// neither yet.
func (sp *spool) move(later int64) (bool, error) {
	if sp.limit >= 0 && sp.offset >= sp.limit {
		return false, nil
	}
	for _, base := range []int64{sp.offset, later} {
		if base <= sp.open.base || base < sp.offset {
			continue // it is open, or not known
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

// advance makes current the record that covers the byte at offset. The index is
// read after the bytes, so it has their records.
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
	// The order within a source is more reliable than its clock.
	sp.headTime = max(sp.headTime, sp.current.time)
	return nil
}

// before reports whether the next chunk of sp comes before that of other.
func (sp *spool) before(other *spool) bool {
	if sp.headTime != other.headTime {
		return sp.headTime < other.headTime
	}
	return sp.src.file() < other.src.file()
}

// take returns the next chunk, which load has found: a gap, or the bytes of one index
// record, as far as they are read.
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

// found takes where the segments begin that the folder has.
func (sp *spool) found(begin []int64) { sp.begin = begin }

// beginPass lets load look for bytes again.
func (sp *spool) beginPass() { sp.dry = false }

// checkLength returns an error if the spool ends before offset.
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

// lastLines returns where the last lines of the bytes from first to end begin. An
// unfinished last line counts. With lines 0 it returns the beginning of an unfinished
// line, or end.
func lastLines(r io.ReaderAt, first, end int64, lines int) (int64, error) {
	if lines > 0 && end > first {
		var last [1]byte
		if _, err := r.ReadAt(last[:], end-1); err != nil {
			return 0, err
		}
		if last[0] == '\n' {
			end-- // the newline that ends the last line begins no other
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
