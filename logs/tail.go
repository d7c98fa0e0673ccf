package logs

import (
	"bytes"
	"io"
)

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
