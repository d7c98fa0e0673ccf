package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
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

// npyHeader is the Python dictionary that describes an array in a .npy file.
type npyHeader struct {
	descr   string
	fortran bool
	shape   []int
}

// parseNPYHeader reads a dictionary with three keys, each once and in any
// order. It accepts Python strings without escapes, True and False, and tuples
// of whole numbers, and nothing else.
func parseNPYHeader(text string) (npyHeader, error) {
	p := npyParser{rest: text}
	var h npyHeader
	seen := map[string]bool{}
	if err := p.expect("{"); err != nil {
		return h, err
	}
	for !p.accept("}") {
		key, err := p.quoted()
		if err != nil {
			return h, err
		}
		if seen[key] {
			return h, fmt.Errorf("key %q is there twice", key)
		}
		seen[key] = true
		if err := h.value(&p, key); err != nil {
			return h, err
		}
		if !p.accept(",") {
			if err := p.expect("}"); err != nil {
				return h, err
			}
			break
		}
	}
	if p.space(); p.rest != "" {
		return h, fmt.Errorf("%.20q follows the dictionary", p.rest)
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if !seen[key] {
			return h, fmt.Errorf("key %q is missing", key)
		}
	}
	return h, nil
}

// npyParser reads a header from the left.
type npyParser struct{ rest string }

func (p *npyParser) space() { p.rest = strings.TrimLeft(p.rest, " \t\n\r") }

func (p *npyParser) accept(token string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.rest, token)
	if ok {
		p.rest = rest
	}
	return ok
}

func (p *npyParser) expect(token string) error {
	if !p.accept(token) {
		return fmt.Errorf("want %q, found %.20q", token, p.rest)
	}
	return nil
}

// value reads the colon and the value of a key.
func (h *npyHeader) value(p *npyParser, key string) (err error) {
	if err := p.expect(":"); err != nil {
		return err
	}
	switch key {
	case "descr":
		if p.accept("[") {
			return errors.New("records with named fields are not read: save each field as an array")
		}
		h.descr, err = p.quoted()
	case "fortran_order":
		h.fortran, err = p.truth()
	case "shape":
		h.shape, err = p.tuple()
	default:
		err = fmt.Errorf("unknown key %q", key)
	}
	return err
}

func (p *npyParser) quoted() (string, error) {
	p.space()
	if p.rest == "" || p.rest[0] != '\'' && p.rest[0] != '"' {
		return "", fmt.Errorf("want a string, found %.20q", p.rest)
	}
	text, rest, closed := strings.Cut(p.rest[1:], p.rest[:1])
	if !closed || strings.ContainsAny(text, "\\\n") {
		return "", fmt.Errorf("string without an end or with an escape: %.20q", p.rest)
	}
	p.rest = rest
	return text, nil
}

func (p *npyParser) truth() (bool, error) {
	if p.accept("True") {
		return true, nil
	}
	return false, p.expect("False")
}

// tuple reads "()", "(3,)", "(3, 4)" and "(3, 4,)". In Python, "(3)" is a
// number and not a tuple.
func (p *npyParser) tuple() ([]int, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	shape := []int{}
	for comma := false; !p.accept(")"); {
		if len(shape) > 0 && !comma || len(shape) == maxDimensions {
			return nil, fmt.Errorf("want the end of a shape of at most %d lengths, found %.20q", maxDimensions, p.rest)
		}
		n, err := p.number()
		if err != nil {
			return nil, err
		}
		shape = append(shape, n)
		if comma = p.accept(","); len(shape) == 1 && !comma {
			return nil, errors.New("the shape is no tuple: a comma is missing after its first length")
		}
	}
	return shape, nil
}

func (p *npyParser) number() (int, error) {
	p.space()
	end := 0
	for end < len(p.rest) && '0' <= p.rest[end] && p.rest[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(p.rest[:end], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("want a length, found %.20q", p.rest)
	}
	p.rest = strings.TrimPrefix(p.rest[end:], "L") // as Python 2 wrote long numbers
	return int(n), nil
}
