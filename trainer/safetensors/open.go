package safetensors

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"
)

// File is an open safetensors file. Its methods may be called by several
// goroutines if the reader's ReadAt allows that.
type File struct {
	reader   io.ReaderAt
	data     int64 // offset in the file at which the tensors' data begin
	metadata map[string]string
	tensors  map[string]placed // tensors of the file; the key is the tensor's name
}

// Info describes a tensor of a safetensors file.
type Info struct {
	Name  string
	Dtype Dtype
	Shape []int
	Size  int64 // size of the tensor's data in bytes
}

// placed is a tensor together with its position in the data.
type placed struct {
	Info
	begin int64
}

// Open reads the header of a safetensors file. size is the file's size in
// bytes. Open reads no tensor data; [File.ReadAt] does that later, so the
// caller must keep r open, and close it at the end.
func Open(r io.ReaderAt, size int64) (*File, error) {
	text, err := readHeader(r, size)
	if err != nil {
		return nil, err
	}
	f := &File{reader: r, data: lengthSize + int64(len(text))}
	var tensors []placed
	if f.metadata, tensors, err = parseHeader(text); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if err := f.arrange(tensors, size-f.data); err != nil {
		return nil, err
	}
	return f, nil
}

// readHeader reads the header's text. It first checks that the length fits
// into the file.
func readHeader(r io.ReaderAt, size int64) ([]byte, error) {
	if size < lengthSize {
		return nil, fmt.Errorf("file of %d bytes, too few for the length of a header", size)
	}
	var length [lengthSize]byte
	if err := readFull(r, length[:], 0); err != nil {
		return nil, fmt.Errorf("read length of the header: %w", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	switch {
	case n > maxHeader:
		return nil, fmt.Errorf("header of %d bytes, at most %d are read", n, maxHeader)
	case int64(n) > size-lengthSize:
		return nil, fmt.Errorf("header of %d bytes in a file of %d: the file is cut, or no safetensors file", n, size)
	}
	text := make([]byte, n)
	if err := readFull(r, text, lengthSize); err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	switch {
	case n == 0 || text[0] != '{':
		return nil, errors.New("header does not begin with {: no safetensors file")
	case !utf8.Valid(text):
		return nil, errors.New("header is not UTF-8")
	}
	return text, nil
}

// arrange sorts the tensors by their offset in the data. It checks that
// together they cover the length bytes of data without gaps or overlaps.
func (f *File) arrange(tensors []placed, length int64) error {
	slices.SortStableFunc(tensors, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.Size, b.Size))
	})
	f.tensors = make(map[string]placed, len(tensors))
	covered := int64(0)
	for i, t := range tensors {
		switch {
		case t.begin > covered:
			return fmt.Errorf("tensor %.100q: begins at byte %d of the data, nothing fills the bytes from %d on", t.Name, t.begin, covered)
		case t.begin < covered:
			return fmt.Errorf("tensor %.100q: begins at byte %d of the data, inside of %.100q, which ends at %d", t.Name, t.begin, tensors[i-1].Name, covered)
		case t.Size > length-covered:
			return fmt.Errorf("tensor %.100q: ends at byte %d of the data, the file has %d: it is cut", t.Name, covered+t.Size, length)
		}
		covered += t.Size
		f.tensors[t.Name] = t
	}
	if covered < length {
		return fmt.Errorf("%d bytes after the last tensor", length-covered)
	}
	return nil
}

// Metadata returns a copy of the file's metadata, or nil if it has none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }

// Names returns the names of all tensors, sorted.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.tensors)) }

// Tensor returns the description of the tensor with this name, or false if the
// file does not have it.
func (f *File) Tensor(name string) (Info, bool) {
	t, ok := f.tensors[name]
	t.Shape = slices.Clone(t.Shape)
	return t.Info, ok
}

// ReadAt fills p with bytes of the tensor with this name. off is the offset of
// the first byte, counted from the beginning of the tensor's data.
func (f *File) ReadAt(name string, p []byte, off int64) error {
	t, ok := f.tensors[name]
	if !ok {
		return fmt.Errorf("tensor %.100q: not in the file", name)
	}
	if off < 0 || off > t.Size-int64(len(p)) {
		return fmt.Errorf("tensor %.100q: %d bytes from %d on are outside of its %d bytes", name, len(p), off, t.Size)
	}
	if err := readFull(f.reader, p, f.data+t.begin+off); err != nil {
		return fmt.Errorf("tensor %.100q: read %d bytes from %d on: %w", name, len(p), off, err)
	}
	return nil
}

// readFull fills p from offset off of r. Unlike r.ReadAt, it never returns
// io.EOF together with a filled p.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	switch n, err := r.ReadAt(p, off); {
	case n == len(p):
		return nil
	case err == io.EOF || err == nil:
		return io.ErrUnexpectedEOF
	default:
		return err
	}
}
