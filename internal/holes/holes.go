// Package holes writes files in which blocks of zeros take no room on the disk:
//
//	w := holes.NewWriter(file, 0)
//	_, err := io.Copy(w, content)
//	err = errors.Join(err, w.Flush())
//
// The content of the file is the same, whatever its file system makes of it.
package holes

import (
	"bytes"
	"io"
)

// block is the unit of zeros that become a hole, in bytes: the block of most file systems.
const block = 4096

var zeros [block]byte

// File is what a Writer writes: an os.File.
type File interface {
	io.Writer
	io.Seeker
	Truncate(size int64) error
}

// Writer appends to a file.
type Writer struct {
	file File
	end  int64 // of what was written, zeros included
	hole int64 // zeros before end that the file has not got yet
}

// NewWriter returns a Writer that appends to a file. Its offset is at its end, which is end.
func NewWriter(file File, end int64) *Writer { return &Writer{file: file, end: end} }

// Write appends p. Zeros at the end of the file are missing until Flush.
func (w *Writer) Write(p []byte) (written int, err error) {
	for written < len(p) {
		n, zero := run(p[written:], w.end)
		if zero {
			w.hole += int64(n)
		} else if n, err = w.data(p[written : written+n]); err != nil {
			w.end += int64(n)
			return written + n, err
		}
		written, w.end = written+n, w.end+int64(n)
	}
	return written, nil
}

func (w *Writer) data(p []byte) (int, error) {
	if w.hole > 0 {
		if _, err := w.file.Seek(w.end, io.SeekStart); err != nil {
			return 0, err
		}
		w.hole = 0
	}
	return w.file.Write(p)
}

// Flush gives the file the zeros at its end.
func (w *Writer) Flush() error {
	if w.hole == 0 {
		return nil
	}
	if err := w.file.Truncate(w.end); err != nil {
		return err
	}
	w.hole = 0
	_, err := w.file.Seek(w.end, io.SeekStart)
	return err
}

// run returns the length of what p, at an offset of the file, begins with: parts of blocks that are
// zeros, or such that are not.
func run(p []byte, offset int64) (n int, zero bool) {
	for n < len(p) {
		part := p[n:min(len(p), n+block-int((offset+int64(n))%block))]
		if is := bytes.Equal(part, zeros[:len(part)]); n == 0 {
			zero = is
		} else if is != zero {
			return n, zero
		}
		n += len(part)
	}
	return n, zero
}
