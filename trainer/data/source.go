package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxBytes is the largest accepted size of a file, in bytes after
// decompression.
const maxBytes = 16 << 30

// formatError is an error about the content of a file, with its position.
// Lines are counted from 1, as in editors; bytes are counted from 0, as in
// hexdump.
type formatError struct {
	file   string
	line   int   // line number of the error, from 1; 0 if offset gives the position instead
	offset int64 // byte offset of the error, from 0; used only if line is 0
	cause  error
}

func (e *formatError) Error() string {
	if e.line > 0 {
		return fmt.Sprintf("%s:%d: %v", e.file, e.line, e.cause)
	}
	return fmt.Sprintf("%s: byte %d: %v", e.file, e.offset, e.cause)
}

func (e *formatError) Unwrap() error { return e.cause }

// hintedError is an error with a hint for the user.
type hintedError struct {
	error
	hint string
}

// Hint returns what the user can do about the error.
func (e hintedError) Hint() string { return e.hint }

func (e hintedError) Unwrap() error { return e.error }

// source reads a file sequentially and keeps track of its offset. It
// decompresses gzip files; offsets then count decompressed bytes.
type source struct {
	name   string
	reader *bufio.Reader
	offset int64 // decompressed bytes read so far
	size   int64 // size of the file in bytes; -1 if the file is compressed or not a regular file
}

// newSource returns a source that reads from r. It decompresses r if the first
// two bytes are gzip's magic number.
func newSource(r io.Reader, name string) (*source, error) {
	s := &source{name: name, size: -1, reader: bufio.NewReaderSize(r, 64<<10)}
	magic, err := s.reader.Peek(2)
	if err != nil && err != io.EOF {
		return nil, s.because(err)
	}
	if bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(s.reader)
		if err != nil {
			return nil, s.fault("gzip: %v", err)
		}
		s.reader = bufio.NewReaderSize(unpacked, 64<<10)
		return s, nil
	}
	if file, ok := r.(*os.File); ok {
		info, err := file.Stat()
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			s.size = info.Size()
		}
	}
	return s, nil
}

// Read implements io.Reader. It advances the offset and adds the position to
// errors.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.reader.Read(p)
	s.offset += int64(n)
	if err != nil && err != io.EOF {
		err = s.because(err)
	}
	return n, err
}

// fault returns an error at the current offset.
func (s *source) fault(format string, args ...any) error {
	return s.faultAt(s.offset, format, args...)
}

func (s *source) faultAt(offset int64, format string, args ...any) error {
	return &formatError{file: s.name, offset: offset, cause: fmt.Errorf(format, args...)}
}

// because returns an error for err, a read error of the file such as a corrupt
// gzip stream. The error names the current position.
func (s *source) because(err error) error {
	if err == io.ErrUnexpectedEOF {
		err = fmt.Errorf("truncated: the gzip stream breaks off: %w", err)
	}
	return &formatError{file: s.name, offset: s.offset, cause: err}
}

// take reads the next n bytes. The parameter what describes them in error
// messages. If the file is shorter than n, take returns an error without
// allocating n bytes.
func (s *source) take(n int64, what string) ([]byte, error) {
	if n > maxBytes {
		return nil, s.fault("%s: %d bytes, more than the %d that are read at most", what, n, int64(maxBytes))
	}
	first := min(n, 1<<20) // size of the first buffer, in bytes
	if s.size >= 0 {
		if left := s.size - s.offset; n > left {
			return nil, s.truncated(what, n, left)
		}
		first = n
	}
	b := bytes.NewBuffer(make([]byte, 0, first+bytes.MinRead))
	got, err := io.CopyN(b, s.reader, n)
	if err == io.EOF {
		return nil, s.truncated(what, n, got)
	}
	s.offset += got
	if err != nil {
		return nil, s.because(err)
	}
	return b.Bytes(), nil
}

func (s *source) truncated(what string, want, got int64) error {
	return s.fault("%s: truncated: want %d bytes, the file has %d", what, want, max(0, got))
}

// more reports whether any bytes are left in the file.
func (s *source) more() (bool, error) {
	switch _, err := s.reader.Peek(1); err {
	case nil:
		return true, nil
	case io.EOF:
		return false, nil
	default:
		return false, s.because(err)
	}
}

// end returns an error if bytes are left in the file. what describes the data
// that should be the last of the file.
func (s *source) end(what string) error {
	more, err := s.more()
	if more {
		return s.fault("more bytes follow the %s", what)
	}
	return err
}

// readFile opens a file, calls read with it and closes it.
func readFile[T any](path string, read func(*source) (T, error)) (x T, err error) {
	if path == "" {
		return x, errors.New("open a file: it has no name")
	}
	file, err := os.Open(path)
	if err != nil {
		return x, err
	}
	defer file.Close() // the error is ignored: no data can be lost in a file opened for reading
	s, err := newSource(file, path)
	if err != nil {
		return x, err
	}
	return read(s)
}
