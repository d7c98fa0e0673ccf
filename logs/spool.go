package logs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"time"
)

// spool reads the files of one source, also while they grow.
type spool struct {
	src   Source
	path  string
	data  *os.File
	index *os.File // nil if the file does not exist
	limit int64    // offset at which to stop; -1 means never

	offset int64  // offset of the next byte to send
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

// openSpool opens a spool and finds its first wanted byte.
func openSpool(path string, src Source, req Request) (*spool, error) {
	sp := &spool{src: src, path: path, limit: -1}
	if err := sp.reopen(); err != nil {
		return nil, err
	}
	if err := sp.position(req); err != nil {
		return nil, errors.Join(err, sp.close())
	}
	return sp, nil
}

// position sets offset, limit and the next record of the index.
func (sp *spool) position(req Request) error {
	info, err := sp.data.Stat()
	if err != nil {
		return err
	}
	if !req.Follow {
		sp.limit = info.Size()
	}
	sp.offset, err = sp.start(req, info)
	if err != nil {
		return err
	}
	// The time of bytes that no record covers.
	sp.current = record{time: info.ModTime().UnixNano()}
	return sp.seekIndex()
}

// start returns the first byte that the request wants of a spool of this size.
func (sp *spool) start(req Request, info os.FileInfo) (start int64, err error) {
	if offset, ok := req.from(sp.src); ok {
		return offset, nil
	}
	if !req.Since.IsZero() {
		if start, err = sp.since(req.Since, info); err != nil {
			return 0, err
		}
	}
	if req.TailLines < 0 {
		return start, nil
	}
	tail, err := lastLines(sp.data, info.Size(), req.TailLines)
	return max(start, tail), err
}

// since returns the start of the first line not finished before t.
func (sp *spool) since(t time.Time, info os.FileInfo) (int64, error) {
	if info.ModTime().Before(t) {
		return lastLines(sp.data, info.Size(), 0)
	}
	ns := t.UnixNano()
	i, n, err := sp.search(func(r record) bool { return r.time >= ns })
	if err != nil || n == 0 {
		return 0, err
	}
	// The burst before may have lasted until after t.
	rec, err := sp.record(max(i-1, 0))
	if err != nil {
		return 0, err
	}
	if i < n && rec.time < ns-int64(burst) {
		if rec, err = sp.record(i); err != nil {
			return 0, err
		}
	}
	return lastLines(sp.data, min(rec.offset, info.Size()), 0)
}

// search returns the number n of whole records in the index, and the number i of the
// first for which after is true, or n. If after is true for a record, it must be true
// for all later ones.
func (sp *spool) search(after func(record) bool) (i, n int64, err error) {
	if sp.index == nil {
		return 0, 0, nil
	}
	info, err := sp.index.Stat()
	if err != nil {
		return 0, 0, err
	}
	n = info.Size() / recordSize
	found := sort.Search(int(n), func(i int) bool {
		rec, failed := sp.record(int64(i))
		err = cmp.Or(err, failed)
		return failed != nil || after(rec)
	})
	return int64(found), n, err
}

// record reads record number i.
func (sp *spool) record(i int64) (record, error) {
	var b [recordSize]byte
	if _, err := sp.index.ReadAt(b[:], i*recordSize); err != nil {
		return record{}, err
	}
	return decodeRecord(b[:]), nil
}

// seekIndex moves to the first record that covers the byte at offset.
func (sp *spool) seekIndex() error {
	i, _, err := sp.search(func(r record) bool { return r.offset >= sp.offset })
	sp.indexed = max(i-1, 0)
	return err
}

// reopen opens the files again and keeps the offsets in them. If the spool was
// removed, the file that is open stays in use.
func (sp *spool) reopen() error {
	data, err := os.Open(sp.path)
	if errors.Is(err, os.ErrNotExist) && sp.data != nil {
		return nil
	}
	if err != nil {
		return err
	}
	index, err := os.Open(sp.path + indexExt)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Join(err, data.Close())
	}
	err = sp.close()
	sp.data, sp.index = data, index
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
	if len(sp.buf) == 0 {
		sp.dry = true
		return false, nil
	}
	if err := sp.advance(); err != nil {
		return false, err
	}
	sp.ready = true
	return true, nil
}

// fill reads the bytes at offset, in one system call.
func (sp *spool) fill() error {
	if sp.store == nil {
		sp.store = make([]byte, maxData)
	}
	room := sp.store
	if sp.limit >= 0 {
		room = room[:min(int64(len(room)), max(sp.limit-sp.offset, 0))]
	}
	n, err := sp.data.ReadAt(room, sp.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	sp.buf = room[:n]
	return nil
}

// advance makes current the record that covers the byte at offset. The index is
// read after the bytes, so it has their records.
func (sp *spool) advance() error {
	for {
		for len(sp.coming) > 0 && sp.coming[0].offset <= sp.offset {
			sp.current, sp.coming = sp.coming[0], sp.coming[1:]
		}
		if len(sp.coming) > 0 || sp.index == nil {
			break
		}
		recs, err := readRecords(sp.index, sp.indexed, sp.scratch[:])
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

// take returns the next chunk, which load has found: the bytes of one index
// record, as far as they are read.
func (sp *spool) take() Chunk {
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

// beginPass lets load look for bytes again.
func (sp *spool) beginPass() { sp.dry = false }

// checkLength returns an error if the spool ends before offset.
func (sp *spool) checkLength() error {
	info, err := sp.data.Stat()
	if err != nil {
		return err
	}
	if info.Size() < sp.offset {
		return fmt.Errorf("has %d bytes, but %d were received before: was it replaced?", info.Size(), sp.offset)
	}
	return nil
}

func (sp *spool) close() error {
	var err error
	if sp.data != nil {
		err = sp.data.Close()
	}
	if sp.index != nil {
		err = errors.Join(err, sp.index.Close())
	}
	sp.data, sp.index = nil, nil
	return err
}

// lastLines returns where the last lines of the first size bytes begin. An unfinished
// last line counts. With lines 0 it returns the beginning of an unfinished line, or size.
func lastLines(r io.ReaderAt, size int64, lines int) (int64, error) {
	end := size
	if lines > 0 && size > 0 {
		var last [1]byte
		if _, err := r.ReadAt(last[:], size-1); err != nil {
			return 0, err
		}
		if last[0] == '\n' {
			end-- // the newline that ends the last line begins no other
		}
		lines--
	}
	var block [16 << 10]byte
	for end > 0 {
		start := max(end-int64(len(block)), 0)
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
	return 0, nil
}
