package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// npyMagic begins a file of NumPy's .npy format ("NEP 1, a simple file format
// for NumPy arrays", and the module numpy.lib.format for versions 2 and 3).
const npyMagic = "\x93NUMPY"

// maxNPYHeader bounds the header, as NumPy itself does for files it does not
// trust.
const maxNPYHeader = 10000

// ReadNPY reads a .npy file of version 1, 2 or 3: int8, int16, int32, int64,
// uint8, float32 or float64 of either byte order, in C order. Arrays of two
// dimensions or more in Fortran order and pickled objects are refused.
func ReadNPY(path string) (*Array, error) { return readFile(path, decodeNPY) }

func decodeNPY(s *source) (*Array, error) {
	header, err := s.takeNPYHeader()
	if err != nil {
		return nil, err
	}
	h, err := parseNPYHeader(header)
	if err != nil {
		return nil, s.fault("NumPy header: %v", err)
	}
	e, order, err := h.element()
	if err != nil {
		return nil, s.hinted("convert it first: numpy.save(file, array.astype(numpy.float32))", "%v", err)
	}
	if h.fortran && len(h.shape) > 1 {
		return nil, s.hinted("save it in C order: numpy.save(file, numpy.ascontiguousarray(array))",
			"the array of shape %v is in Fortran order, which is not read", h.shape)
	}
	return s.takeArray(h.shape, e, order)
}

// takeNPYHeader reads up to where the values begin and returns the header's text.
func (s *source) takeNPYHeader() (string, error) {
	lead, err := s.take(int64(len(npyMagic))+2, "NumPy magic and version")
	if err != nil {
		return "", err
	}
	if !bytes.HasPrefix(lead, []byte(npyMagic)) {
		s.offset = 0
		return "", s.hinted("an .npz archive is unpacked first: it holds one .npy file for each array",
			"not a .npy file: it begins with % x, want % x", lead[:len(npyMagic)], npyMagic)
	}
	var length int64
	switch version := lead[len(npyMagic)]; version {
	case 1:
		b, err := s.take(2, "length of the NumPy header")
		if err != nil {
			return "", err
		}
		length = int64(binary.LittleEndian.Uint16(b))
	case 2, 3:
		b, err := s.take(4, "length of the NumPy header")
		if err != nil {
			return "", err
		}
		length = int64(binary.LittleEndian.Uint32(b))
	default:
		return "", s.fault("version %d of .npy, want 1, 2 or 3", version)
	}
	if length > maxNPYHeader {
		return "", s.fault("NumPy header of %d bytes, at most %d are read", length, maxNPYHeader)
	}
	header, err := s.take(length, "NumPy header")
	return string(header), err
}

// element is the header's element type. NumPy writes |, < or > for the byte
// order and a letter and a size for the type.
func (h npyHeader) element() (element, binary.ByteOrder, error) {
	var order binary.ByteOrder = binary.LittleEndian
	name := h.descr
	switch {
	case strings.HasPrefix(name, ">"):
		order = binary.BigEndian
		fallthrough
	case strings.HasPrefix(name, "<"), strings.HasPrefix(name, "|"):
		name = name[1:]
	}
	e, known := elementTypes[name]
	if strings.HasPrefix(name, "O") {
		return e, nil, errors.New("the array holds Python objects: pickles are not read")
	}
	if !known {
		return e, nil, fmt.Errorf("element type %q, want int8 to int64, uint8, float32 or float64", h.descr)
	}
	return e, order, nil
}

// WriteNPY writes an array as a .npy file of version 1, little-endian, in C
// order. The file is new or overwritten; after an error it may be incomplete.
func WriteNPY(path string, a *Array) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := encodeNPY(f, a); err != nil {
		return fmt.Errorf("%s: write: %w", path, err)
	}
	return nil
}

func encodeNPY(w io.Writer, a *Array) error {
	descr, n, err := npyDescr(a.Values)
	if err != nil {
		return err
	}
	want, err := elements(a.Shape, maxBytes)
	if err == nil && want != int64(n) {
		err = fmt.Errorf("shape %v of %d values", a.Shape, n)
	}
	if err != nil {
		return err
	}
	if _, err := w.Write(npyLead(npyHeader{descr: descr, shape: a.Shape})); err != nil {
		return err
	}
	return writeValues(w, a.Values)
}

// npyLead is everything before the values; they begin at a multiple of 64.
func npyLead(h npyHeader) []byte {
	text := h.String()
	before := len(npyMagic) + 4
	text += strings.Repeat(" ", 63-(before+len(text))%64) + "\n"
	lead := append([]byte(npyMagic), 1, 0)
	lead = binary.LittleEndian.AppendUint16(lead, uint16(len(text)))
	return append(lead, text...)
}

func npyDescr(values any) (descr string, n int, err error) {
	switch v := values.(type) {
	case []uint8:
		return "|u1", len(v), nil
	case []int8:
		return "|i1", len(v), nil
	case []int16:
		return "<i2", len(v), nil
	case []int32:
		return "<i4", len(v), nil
	case []int64:
		return "<i8", len(v), nil
	case []float32:
		return "<f4", len(v), nil
	case []float64:
		return "<f8", len(v), nil
	}
	return "", 0, fmt.Errorf("values of type %T, want a slice of int8 to int64, uint8, float32 or float64", values)
}

// writeValues writes in pieces, so that no second copy of a large array is made.
func writeValues(w io.Writer, values any) error {
	switch v := values.(type) {
	case []uint8:
		_, err := w.Write(v)
		return err
	case []int8:
		return writePieces(w, v)
	case []int16:
		return writePieces(w, v)
	case []int32:
		return writePieces(w, v)
	case []int64:
		return writePieces(w, v)
	case []float32:
		return writePieces(w, v)
	case []float64:
		return writePieces(w, v)
	}
	return nil
}

func writePieces[T Number](w io.Writer, v []T) error {
	const piece = 8192
	for len(v) > 0 {
		n := min(piece, len(v))
		if err := binary.Write(w, binary.LittleEndian, v[:n]); err != nil {
			return err
		}
		v = v[n:]
	}
	return nil
}
