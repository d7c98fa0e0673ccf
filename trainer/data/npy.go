package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// npyMagic begins a file of NumPy's .npy format ("NEP 1, a simple file format
// for NumPy arrays", and the module numpy.lib.format for versions 2 and 3).
const npyMagic = "\x93NUMPY"

// maxNPYHeader bounds the header. NumPy has the same bound for files that it
// does not trust.
const maxNPYHeader = 10000

// ReadNPY reads a .npy file of version 1, 2 or 3 with int8, int16, int32,
// int64, uint8, float32 or float64 of either byte order, in C order. It refuses
// Fortran order with two dimensions or more, and pickled objects.
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
	return e.takeArray(s, h.shape, order)
}

// takeNPYHeader reads up to the first value and returns the header's text.
func (s *source) takeNPYHeader() (string, error) {
	lead, err := s.take(int64(len(npyMagic))+2, "NumPy magic and version")
	if err != nil {
		return "", err
	}
	if !bytes.HasPrefix(lead, []byte(npyMagic)) {
		s.back(s.offset)
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

// element returns the header's element type. NumPy writes |, < or > for the
// byte order, then a letter and a size for the type.
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
