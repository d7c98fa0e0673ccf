// Package holes writes sparse files: blocks of zeros become holes, which take
// no disk space:
//
//	w := holes.NewWriter(file, 0)
//	_, err := io.Copy(w, content)
//	err = errors.Join(err, w.Flush())
//
// A reader of the file sees the same content, even on a file system without
// holes.
package holes

import (
	"bytes"
	"io"
)

// block is the size of the blocks that can become holes, in bytes: the block
// size of most file systems.
const block = 4096

var zeros [block]byte

// File is the file to which a Writer writes, usually an os.File.
type File interface {
	io.Writer
	io.Seeker
	Truncate(size int64) error
}

// Writer appends to a file and leaves holes for blocks of zeros.
type Writer struct {
	file File
	end  int64 // offset after the last byte passed to Write, including zeros that are not in the file yet
	hole int64 // number of zeros before end that are not in the file yet
}

// NewWriter returns a Writer that appends to file. The parameter end is the
// size of the file. The file's offset must be at the end of the file.
func NewWriter(file File, end int64) *Writer { return &Writer{file: file, end: end} }

// Write appends p. If p ends with zeros, the file may lack them until Flush.
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

// Flush extends the file by the zeros at its end that Write has left out.
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

// run returns the length of the first run in p, and whether the run consists
// of zeros. A run is a sequence of blocks that are all zero, or that all
// contain other bytes. The first and the last block of a run may be
// incomplete. offset is the offset of p in the file.
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
