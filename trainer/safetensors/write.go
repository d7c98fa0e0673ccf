package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// Tensor is a tensor to write. Data holds the elements in row-major order,
// little-endian.
type Tensor struct {
	Name  string
	Dtype Dtype
	Shape []int
	Data  []byte
}

// Write writes the tensors to w as one file, in the given order, and returns
// the number of bytes written. Write checks all arguments before it writes
// anything, and does not copy the data. Put tensors with wide elements first:
// then all tensors are aligned for readers that map the file into memory.
func Write(w io.Writer, metadata map[string]string, tensors []Tensor) (int64, error) {
	header, err := encodeHeader(metadata, tensors)
	if err != nil {
		return 0, err
	}
	written, err := bytes.NewReader(header).WriteTo(w)
	if err != nil {
		return written, fmt.Errorf("write header: %w", err)
	}
	for _, t := range tensors {
		n, err := bytes.NewReader(t.Data).WriteTo(w)
		written += n
		if err != nil {
			return written, fmt.Errorf("write tensor %.100q: %w", t.Name, err)
		}
	}
	return written, nil
}

// encodeHeader returns all bytes before the tensors' data. It pads the header
// so that the data begin at a multiple of 8.
func encodeHeader(metadata map[string]string, tensors []Tensor) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, lengthSize, 512))
	b.WriteByte('{')
	if len(metadata) > 0 {
		if err := encodeMetadata(b, metadata); err != nil {
			return nil, err
		}
	}
	seen := make(map[string]bool, len(tensors))
	offset := int64(0)
	for i, t := range tensors {
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("tensor %.100q: %w", t.Name, err)
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("tensor %.100q: twice", t.Name)
		}
		seen[t.Name] = true
		if i > 0 || len(metadata) > 0 {
			b.WriteByte(',')
		}
		end := offset + int64(len(t.Data))
		encodeJSON(b, t.Name)
		b.WriteByte(':')
		encodeJSON(b, entry{t.Dtype, append([]int{}, t.Shape...), [2]int64{offset, end}})
		offset = end
	}
	b.WriteByte('}')
	b.Write(bytes.Repeat([]byte(" "), -b.Len()&7))
	length := b.Len() - lengthSize
	if length > maxHeader {
		return nil, fmt.Errorf("header of %d bytes for %d tensors, at most %d are read", length, len(tensors), maxHeader)
	}
	header := b.Bytes()
	binary.LittleEndian.PutUint64(header, uint64(length))
	return header, nil
}

// entry is the value that describes a tensor in the header.
type entry struct {
	Dtype   Dtype    `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// encodeMetadata writes the metadata as the first key of the header, sorted by
// key.
func encodeMetadata(b *bytes.Buffer, metadata map[string]string) error {
	for key, value := range metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return fmt.Errorf("metadata %.100q: not UTF-8", key)
		}
	}
	b.WriteString(`"` + metadataKey + `":`)
	encodeJSON(b, metadata)
	return nil
}

// encodeJSON writes v as JSON without a newline. v must be a string, a map of
// strings or an entry, which encoding/json can always encode.
func encodeJSON(b *bytes.Buffer, v any) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	b.Truncate(b.Len() - 1) // remove the newline that Encode has added
}

// check returns an error if the name is empty or not UTF-8, or the data have
// the wrong size for type and shape.
func (t Tensor) check() error {
	switch {
	case t.Name == "":
		return errors.New("no name")
	case t.Name == metadataKey:
		return errors.New("this name is the metadata's")
	case !utf8.ValidString(t.Name):
		return errors.New("the name is not UTF-8")
	}
	size, err := sizeOf(t.Dtype, t.Shape)
	if err == nil && int64(len(t.Data)) != size {
		err = fmt.Errorf("%d bytes of data for %s %v, want %d", len(t.Data), t.Dtype, t.Shape, size)
	}
	return err
}
