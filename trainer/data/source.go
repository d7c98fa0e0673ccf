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

// maxBytes bounds the unpacked size of a file.
const maxBytes = 16 << 30

// formatError says where a file is wrong. Lines count from 1, like in editors;
// bytes count from 0, like in hexdump.
type formatError struct {
	file   string
	line   int   // line of the error, from 1; 0 if the file is not a text
	offset int64 // byte of the error, from 0; used if line is 0
	cause  error
}

func (e *formatError) Error() string {
	if e.line > 0 {
		return fmt.Sprintf("%s:%d: %v", e.file, e.line, e.cause)
	}
	return fmt.Sprintf("%s: byte %d: %v", e.file, e.offset, e.cause)
}

func (e *formatError) Unwrap() error { return e.cause }

// hintedError is an error with a hint.
type hintedError struct {
	error
	hint string
}

// Hint says what to do.
func (e hintedError) Hint() string { return e.hint }

func (e hintedError) Unwrap() error { return e.error }

// source reads a file from its beginning and knows its place in it. It unpacks
// packed files; offsets count unpacked bytes.
type source struct {
	name   string
	reader *bufio.Reader
	offset int64 // number of unpacked bytes read
	size   int64 // bytes of the file; -1 if unknown, or if the file is packed
}

// newSource reads from r. The first bytes show whether it is packed with gzip.
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

// Read reads what follows, for readers of lines.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.reader.Read(p)
	s.offset += int64(n)
	if err != nil && err != io.EOF {
		err = s.because(err)
	}
	return n, err
}

// fault is an error at the present offset.
func (s *source) fault(format string, args ...any) error {
	return s.faultAt(s.offset, format, args...)
}

func (s *source) faultAt(offset int64, format string, args ...any) error {
	return &formatError{file: s.name, offset: offset, cause: fmt.Errorf(format, args...)}
}

// because is an error of the underlying file, such as a broken gzip stream.
func (s *source) because(err error) error {
	if err == io.ErrUnexpectedEOF {
		err = fmt.Errorf("truncated: the gzip stream breaks off: %w", err)
	}
	return &formatError{file: s.name, offset: s.offset, cause: err}
}

// take reads n bytes of what. It allocates no more memory than the file holds,
// whatever n says.
func (s *source) take(n int64, what string) ([]byte, error) {
	if n > maxBytes {
		return nil, s.fault("%s: %d bytes, more than the %d that are read at most", what, n, int64(maxBytes))
	}
	first := min(n, 1<<20) // bytes of memory before anything is read
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

// more reports whether there is anything left.
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

// end checks that nothing follows.
func (s *source) end(what string) error {
	more, err := s.more()
	if more {
		return s.fault("more bytes follow the %s", what)
	}
	return err
}

// readFile opens a file, gives it to read and closes it.
func readFile[T any](path string, read func(*source) (T, error)) (x T, err error) {
	if path == "" {
		return x, errors.New("open a file: it has no name")
	}
	file, err := os.Open(path)
	if err != nil {
		return x, err
	}
	defer file.Close() // opened for reading: nothing to lose
	s, err := newSource(file, path)
	if err != nil {
		return x, err
	}
	return read(s)
}
