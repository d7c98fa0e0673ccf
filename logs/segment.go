package logs

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// A spool (the stored output of one task and stream) consists of segment
// files, so that a size limit can drop its oldest bytes. The first segment has
// the name of its source, such as worker-3.stdout. The name of a later segment
// ends in the offset of its first byte: worker-3.stdout.67108864. Each segment
// begins at the offset where the segment before ends, and has its own index
// file. A Writer appends to the newest segment.

// perLimit is the number of segments whose total size equals a task's size
// limit.
const perLimit = 16

// MinLimit is the smallest size limit of a task's spools, in bytes.
const MinLimit = 1 << 20

// segmentFile returns the file name of the segment of src whose first byte has
// the offset base.
func segmentFile(src Source, base int64) string {
	if base == 0 {
		return src.file()
	}
	return src.file() + "." + strconv.FormatInt(base, 10)
}

// segmentOf parses a file name that segmentFile returned.
func segmentOf(name string) (src Source, base int64, ok bool) {
	whole := name
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		if n, err := strconv.ParseInt(name[i+1:], 10, 64); err == nil && n > 0 {
			name, base = name[:i], n
		}
	}
	src, ok = sourceOf(name)
	return src, base, ok && segmentFile(src, base) == whole
}

// segmentsIn returns the offset of the first byte of each segment in dir, by
// source and in ascending order.
func segmentsIn(dir string) (map[Source][]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := map[Source][]int64{}
	for _, e := range entries {
		if src, base, ok := segmentOf(e.Name()); ok {
			found[src] = append(found[src], base)
		}
	}
	for _, bases := range found {
		slices.Sort(bases)
	}
	return found, nil
}

// dropOldest removes the oldest segments of a task's two streams until its
// complete segments take at most room bytes. It never removes the newest
// segment of a stream, to which a Writer appends.
func dropOldest(dir, task string, room int64) error {
	type file struct {
		path  string
		size  int64
		mtime int64
	}
	found, err := segmentsIn(dir)
	if err != nil {
		return err
	}
	var complete []file
	for src, bases := range found {
		if src.Task != task {
			continue
		}
		for _, base := range bases[:len(bases)-1] {
			f := file{path: filepath.Join(dir, segmentFile(src, base))}
			info, err := os.Stat(f.path)
			if err != nil {
				continue // the Writer of the task's other stream has just removed the segment
			}
			f.size, f.mtime = info.Size(), info.ModTime().UnixNano()
			if info, err = os.Stat(f.path + indexExt); err == nil {
				f.size += info.Size()
			}
			room -= f.size
			complete = append(complete, f)
		}
	}
	slices.SortFunc(complete, func(a, b file) int { return cmp.Compare(a.mtime, b.mtime) })
	for _, f := range complete {
		if room >= 0 {
			break
		}
		room += f.size
		// Remove the data before its index, because a reader can use data
		// without an index but no index without data.
		for _, path := range []string{f.path, f.path + indexExt} {
			if failed := os.Remove(path); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
				err = errors.Join(err, failed)
			}
		}
	}
	return err
}

// segment is a segment file of a spool, opened for reading.
type segment struct {
	base  int64 // offset of the segment's first byte in the spool
	path  string
	data  *os.File
	index *os.File // index file of the segment; nil if there is none
}

func openSegment(dir string, src Source, base int64) (segment, error) {
	s := segment{base: base, path: filepath.Join(dir, segmentFile(src, base))}
	data, err := os.Open(s.path)
	if err != nil {
		return s, err
	}
	index, err := os.Open(s.path + indexExt)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, errors.Join(err, data.Close())
	}
	s.data, s.index = data, index
	return s, nil
}

func (s segment) close() error {
	err := s.data.Close()
	if s.index != nil {
		err = errors.Join(err, s.index.Close())
	}
	return err
}

// end returns the offset after the segment's last byte.
func (s segment) end() (int64, error) {
	info, err := s.data.Stat()
	if err != nil {
		return 0, err
	}
	return s.base + info.Size(), nil
}

// records returns the number of complete records in the segment's index.
func (s segment) records() (int64, error) {
	if s.index == nil {
		return 0, nil
	}
	info, err := s.index.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size() / recordSize, nil
}

// segments are consecutive files of a spool (the log of one stream of one
// task), in order and without gaps. Its methods address bytes by their offset
// in the spool.
type segments []segment

// openSegments opens the segments that begin at bases. If there is a gap
// between them, it keeps only the segments after the last gap. It skips
// segments that a Writer removes at the same time. If no segment is left, the
// error is fs.ErrNotExist.
func openSegments(dir string, src Source, bases []int64) (all segments, err error) {
	for _, base := range bases {
		s, err := openSegment(dir, src, base)
		if errors.Is(err, fs.ErrNotExist) && len(all) == 0 {
			continue
		}
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		if end, err := all.end(); err != nil || end != base {
			if err = errors.Join(err, all.close()); err != nil {
				return nil, errors.Join(err, s.close())
			}
			all = nil
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, fs.ErrNotExist
	}
	return all, nil
}

func (all segments) close() (err error) {
	for _, s := range all {
		err = errors.Join(err, s.close())
	}
	return err
}

func (all segments) end() (int64, error) {
	if len(all) == 0 {
		return 0, nil
	}
	return all[len(all)-1].end()
}

// at returns the index of the segment that contains the byte at offset. If no
// segment contains it, at returns the first or the last index, whichever is
// nearer.
func (all segments) at(offset int64) int {
	i := sort.Search(len(all), func(i int) bool { return all[i].base > offset })
	return max(i-1, 0)
}

// ReadAt reads len(b) bytes from an offset of the spool, if necessary from
// several segments.
func (all segments) ReadAt(b []byte, offset int64) (n int, err error) {
	for i := all.at(offset); i < len(all) && n < len(b); i++ {
		from := offset + int64(n) - all[i].base
		part := b[n:]
		if i+1 < len(all) {
			part = part[:min(int64(len(part)), all[i+1].base-all[i].base-from)]
		}
		m, err := all[i].data.ReadAt(part, from)
		n += m
		if m < len(part) {
			return n, err
		}
	}
	if n < len(b) {
		err = io.EOF
	}
	return n, err
}

// search does a binary search in the index records of all segments. It returns
// the total number n of records, and the number i of the first record for
// which the function after is true. If after is true for no record, i is n. If
// after is true for a record, it must be true for all later records.
func (all segments) search(after func(record) bool) (i, n int64, err error) {
	for _, s := range all {
		more, err := s.records()
		if err != nil {
			return 0, 0, err
		}
		n += more
	}
	found := sort.Search(int(n), func(i int) bool {
		rec, failed := all.record(int64(i))
		err = cmp.Or(err, failed)
		return failed != nil || after(rec)
	})
	return int64(found), n, err
}

// record reads record number i, counted over the indexes of all segments.
func (all segments) record(i int64) (record, error) {
	for _, s := range all {
		n, err := s.records()
		if err != nil {
			return record{}, err
		}
		if i >= n {
			i -= n
			continue
		}
		var b [recordSize]byte
		if _, err := s.index.ReadAt(b[:], i*recordSize); err != nil {
			return record{}, err
		}
		return decodeRecord(b[:]), nil
	}
	return record{}, io.EOF
}
