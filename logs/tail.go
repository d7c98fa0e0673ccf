package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Tail returns the last lines of a source's spool in dir, at most limit bytes
// of them: a longer line loses its beginning. A spool that does not exist has
// no lines. An unfinished last line counts as one.
func Tail(dir string, src Source, lines int, limit int64) (tail []byte, err error) {
	if err := src.check(); err != nil {
		return nil, err
	}
	if lines <= 0 {
		return nil, nil
	}
	f, err := os.Open(filepath.Join(dir, src.file()))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("spool of %s: %w", src, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("spool of %s: %w", src, err)
	}
	start, err := lastLines(f, info.Size(), lines, limit)
	if err != nil {
		return nil, fmt.Errorf("spool of %s: %w", src, err)
	}
	tail = make([]byte, info.Size()-start)
	if _, err := io.ReadFull(io.NewSectionReader(f, start, int64(len(tail))), tail); err != nil {
		return nil, fmt.Errorf("spool of %s: %w", src, err)
	}
	return tail, nil
}

// lastLines returns where the last lines of the first size bytes begin, but no
// more than limit bytes before their end. With lines 0 it is the beginning of
// an unfinished line, or size.
func lastLines(r io.ReaderAt, size int64, lines int, limit int64) (int64, error) {
	end := size
	if lines > 0 {
		// The newline that ends the last line begins no other.
		var last [1]byte
		if size > 0 {
			if _, err := r.ReadAt(last[:], size-1); err != nil {
				return 0, err
			}
		}
		if last[0] == '\n' {
			end--
		}
		lines--
	}
	return newlineBefore(r, end, max(size-limit, 0), lines)
}

// lineStart returns where the line begins that holds the byte before end, or
// end when that byte is a newline.
func lineStart(r io.ReaderAt, end int64) (int64, error) {
	return newlineBefore(r, end, 0, 0)
}

// newlineBefore returns the offset behind the newline before end, skipping so
// many, and floor when there are not enough at or after it.
func newlineBefore(r io.ReaderAt, end, floor int64, skip int) (int64, error) {
	var block [16 << 10]byte
	for end > floor {
		start := max(end-int64(len(block)), floor)
		b := block[:end-start]
		if _, err := r.ReadAt(b, start); err != nil {
			return 0, err
		}
		for i := bytes.LastIndexByte(b, '\n'); i >= 0; i = bytes.LastIndexByte(b[:i], '\n') {
			if skip == 0 {
				return start + int64(i) + 1, nil
			}
			skip--
		}
		end = start
	}
	return floor, nil
}
