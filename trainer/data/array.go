package data

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// array holds the numbers of an IDX or NumPy file in row-major order.
type array struct {
	shape  []int // length of each dimension, the slowest-varying first; empty for a scalar
	values any   // a slice such as []uint8 or []float32; its length is the product of shape
}

// number lists the Go types that the elements of an array can have.
type number interface {
	uint8 | int8 | int16 | int32 | int64 | float32 | float64
}

// float32s returns all values of the array converted to float32, each rounded
// to the nearest.
func (a *array) float32s() []float32 {
	switch v := a.values.(type) {
	case []float32:
		return v
	case []uint8:
		return rounded(v)
	case []int8:
		return rounded(v)
	case []int16:
		return rounded(v)
	case []int32:
		return rounded(v)
	case []int64:
		return rounded(v)
	case []float64:
		return rounded(v)
	}
	return nil
}

func rounded[T number](from []T) []float32 {
	to := make([]float32, len(from))
	for i, x := range from {
		to[i] = float32(x)
	}
	return to
}

// maxDimensions is the largest number of dimensions that array files may have.
// NumPy allows 32, the IDX format 255.
const maxDimensions = 32

// elements returns the product of the lengths in shape, which is the number of
// array elements. It returns an error if a length is negative or if the
// product exceeds max.
func elements(shape []int, max int64) (int64, error) {
	if len(shape) > maxDimensions {
		return 0, fmt.Errorf("%d dimensions, at most %d are read", len(shape), maxDimensions)
	}
	n, zero := int64(1), false
	for _, length := range shape {
		if length < 0 {
			return 0, fmt.Errorf("shape %v: negative length", shape)
		}
		if length == 0 {
			zero = true
			continue
		}
		if int64(length) > max/n {
			return 0, fmt.Errorf("shape %v: more than the %d elements that are read at most", shape, max)
		}
		n *= int64(length)
	}
	if zero {
		return 0, nil
	}
	return n, nil
}

// element describes one numeric element type of an array file.
type element struct {
	name   string
	size   int                                        // bytes per number
	decode func(order binary.ByteOrder, b []byte) any // converts b, whose length is a multiple of size, to a slice of numbers
}

// elementTypes maps NumPy's type names, such as "f4", to the element types
// that IDX and NumPy files may have.
var elementTypes = map[string]element{
	"u1": {"uint8", 1, func(_ binary.ByteOrder, b []byte) any { return b }},
	"i1": elementOf[int8](), "i2": elementOf[int16](), "i4": elementOf[int32](), "i8": elementOf[int64](),
	"f4": elementOf[float32](), "f8": elementOf[float64](),
}

func elementOf[T number]() element {
	var one T
	size := binary.Size(one)
	return element{fmt.Sprintf("%T", one), size, func(order binary.ByteOrder, b []byte) any {
		values := make([]T, len(b)/size)
		binary.Decode(b, order, values) // cannot fail, because values has room for exactly len(b) bytes
		return values
	}}
}

// takeArray reads an array of the given shape from s. It returns an error if
// the file ends before the array does, or has bytes after the array.
func (e element) takeArray(s *source, shape []int, order binary.ByteOrder) (*array, error) {
	n, err := elements(shape, maxBytes/int64(e.size))
	if err != nil {
		return nil, s.because(err)
	}
	b, err := s.take(n*int64(e.size), fmt.Sprintf("%s values of shape %v", e.name, shape))
	if err != nil {
		return nil, err
	}
	if err := s.end("values"); err != nil {
		return nil, err
	}
	return &array{shape, e.decode(order, b)}, nil
}

// idxTypes maps the type code in an IDX header to NumPy's name for the same
// element type.
var idxTypes = map[byte]string{0x08: "u1", 0x09: "i1", 0x0b: "i2", 0x0c: "i4", 0x0d: "f4", 0x0e: "f8"}

// readIDX reads a file in the IDX format of the MNIST data set. The file may
// be compressed with gzip. It begins with two zero bytes, a byte for the
// element type and a byte for the number of dimensions. The length of each
// dimension follows as a big-endian uint32, then the elements, also
// big-endian.
func readIDX(path string) (*array, error) { return readFile(path, decodeIDX) }

func decodeIDX(s *source) (*array, error) {
	head, err := s.take(4, "IDX header")
	if err != nil {
		return nil, err
	}
	name, known := idxTypes[head[2]]
	if head[0] != 0 || head[1] != 0 || !known {
		return nil, hintedError{s.faultAt(0, "not an IDX file: it begins with % x, want 00 00, "+
			"an element type (08, 09, 0b, 0c, 0d, 0e) and the number of dimensions", head),
			"MNIST's files are named like train-images-idx3-ubyte.gz"}
	}
	lengths, err := s.take(4*int64(head[3]), "lengths of the dimensions")
	if err != nil {
		return nil, err
	}
	shape := make([]int, head[3])
	for i := range shape {
		shape[i] = int(binary.BigEndian.Uint32(lengths[4*i:]))
	}
	return elementTypes[name].takeArray(s, shape, binary.BigEndian)
}

// npyMagic is the first 6 bytes of every file in NumPy's .npy format. NEP 1
// ("a simple file format for NumPy arrays") defines version 1 of the format,
// and the documentation of numpy.lib.format versions 2 and 3.
const npyMagic = "\x93NUMPY"

// maxNPYHeader is the largest accepted length of a .npy header, in bytes.
// NumPy uses the same limit for untrusted files.
const maxNPYHeader = 10000

// ReadNPY reads a matrix from a .npy file of version 1, 2 or 3. The file may
// be compressed with gzip. The elements may be int8, int16, int32, int64,
// uint8, float32 or float64, of either byte order, in C order. ReadNPY rejects
// Fortran order, pickled objects, and numbers that are not finite in float32.
func ReadNPY(path string) (*Table, error) { return readFile(path, decodeMatrix) }

// decodeMatrix reads a two-dimensional .npy array from s. It rejects values
// that are NaN or infinite.
func decodeMatrix(s *source) (*Table, error) {
	a, err := decodeNPY(s)
	if err != nil {
		return nil, err
	}
	if len(a.shape) != 2 || a.shape[0] < 1 || a.shape[1] < 1 {
		return nil, hintedError{s.faultAt(0, "an array of shape %v, want two dimensions with at least one row and column", a.shape),
			"bring it into that form first: numpy.save(file, array.reshape(len(array), -1))"}
	}
	t := &Table{Width: a.shape[1], Values: a.float32s()}
	for i, x := range t.Values {
		if x-x != 0 { // true if x is NaN or infinite
			after := len(t.Values) - i // number of values from value i to the end of the file
			return nil, s.faultAt(s.offset-int64(after*binary.Size(a.values)/len(t.Values)), "row %d, column %d: %v is not finite", i/t.Width, i%t.Width, x)
		}
	}
	return t, nil
}

func decodeNPY(s *source) (*array, error) {
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
		return nil, hintedError{s.because(err), "convert it first: numpy.save(file, array.astype(numpy.float32))"}
	}
	if h.fortran && len(h.shape) > 1 {
		return nil, hintedError{s.fault("the array of shape %v is in Fortran order, which is not read", h.shape),
			"save it in C order: numpy.save(file, numpy.ascontiguousarray(array))"}
	}
	return e.takeArray(s, h.shape, order)
}

// takeNPYHeader reads the magic, the version and the header of a .npy file. It
// returns the header's text and leaves s at the first array element.
func (s *source) takeNPYHeader() (string, error) {
	lead, err := s.take(int64(len(npyMagic))+2, "NumPy magic and version")
	if err != nil {
		return "", err
	}
	if !bytes.HasPrefix(lead, []byte(npyMagic)) {
		return "", hintedError{s.faultAt(0, "not a .npy file: it begins with % x, want % x", lead[:len(npyMagic)], npyMagic),
			"an .npz archive is unpacked first: it holds one .npy file for each array"}
	}
	version := lead[len(npyMagic)]
	if version < 1 || version > 3 {
		return "", s.fault("version %d of .npy, want 1, 2 or 3", version)
	}
	size := int64(4)
	if version == 1 {
		size = 2
	}
	b, err := s.take(size, "length of the NumPy header")
	if err != nil {
		return "", err
	}
	length := binary.LittleEndian.Uint32(append(b, 0, 0))
	if length > maxNPYHeader {
		return "", s.fault("NumPy header of %d bytes, at most %d are read", length, maxNPYHeader)
	}
	header, err := s.take(int64(length), "NumPy header")
	return string(header), err
}

// npyHeader is the Python dictionary that describes an array in a .npy file.
type npyHeader struct {
	descr   string
	fortran bool
	shape   []int
}

// element returns the element type and byte order that the header's descr
// names. NumPy writes |, < or > for the byte order, then a letter and a size
// for the type: "<f4".
func (h npyHeader) element() (element, binary.ByteOrder, error) {
	var order binary.ByteOrder = binary.LittleEndian
	if strings.HasPrefix(h.descr, ">") {
		order = binary.BigEndian
	}
	name := h.descr
	if name != "" && strings.Contains("<>|", name[:1]) {
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

// parseNPYHeader parses the Python dictionary in a .npy header. The dictionary
// must have the keys descr, fortran_order and shape once each, in any order.
func parseNPYHeader(text string) (npyHeader, error) {
	var h npyHeader
	p := npyParser{rest: text}
	seen := map[string]bool{}
	p.expect("{")
	for !p.accept("}") && p.err == nil {
		key := p.quoted()
		if p.err == nil && seen[key] {
			return h, fmt.Errorf("key %q is there twice", key)
		}
		seen[key] = true
		p.expect(":")
		h.value(&p, key)
		if !p.accept(",") {
			p.expect("}")
			break
		}
	}
	if p.err != nil {
		return h, p.err
	}
	if p.accept(""); p.rest != "" {
		return h, fmt.Errorf("%.20q follows the dictionary", p.rest)
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if !seen[key] {
			return h, fmt.Errorf("key %q is missing", key)
		}
	}
	return h, nil
}

// value parses the value of one dictionary key and stores it in h.
func (h *npyHeader) value(p *npyParser, key string) {
	switch key {
	case "descr":
		if p.accept("[") {
			p.fail(errors.New("records with named fields are not read: save each field as an array"))
		}
		h.descr = p.quoted()
	case "fortran_order":
		h.fortran = p.match(npyTruth, "True or False") == "True"
	case "shape":
		h.shape = []int{}
		for _, length := range npyLength.FindAllString(p.match(npyTuple, "a tuple of lengths, such as (3, 4) or (3,)"), -1) {
			n, err := strconv.Atoi(length)
			if err != nil {
				p.fail(fmt.Errorf("length %s of a dimension is too large", length))
			}
			h.shape = append(h.shape, n)
		}
	default:
		p.fail(fmt.Errorf("unknown key %q", key))
	}
}

// Patterns for the values in a .npy header: strings without escapes, True and
// False, and tuples of integers. Python 2 wrote integers like 3L. A tuple with
// one element needs a comma, because (3) is a number in Python.
var (
	npyString = regexp.MustCompile(`^('[^'\\\n]*'|"[^"\\\n]*")`)
	npyTruth  = regexp.MustCompile(`^(True|False)`)
	npyTuple  = regexp.MustCompile(`^\(\s*((\d+L?\s*,\s*)+(\d+L?\s*)?)?\)`)
	npyLength = regexp.MustCompile(`\d+`)
)

// npyParser parses a .npy header from left to right. After an error it
// consumes nothing more.
type npyParser struct {
	rest string // the part of the header that has not been parsed yet
	err  error  // the first error; nil if there was none
}

func (p *npyParser) fail(err error) { p.err = cmp.Or(p.err, err) }

// accept skips white space. If the token follows, it consumes the token and
// returns true.
func (p *npyParser) accept(token string) bool {
	p.rest = strings.TrimLeft(p.rest, " \t\n\r")
	rest, found := strings.CutPrefix(p.rest, token)
	if !found || p.err != nil {
		return false
	}
	p.rest = rest
	return true
}

func (p *npyParser) expect(token string) {
	if !p.accept(token) {
		p.fail(fmt.Errorf("want %q, found %.20q", token, p.rest))
	}
}

// match consumes and returns the text that pattern matches at the current
// position. An empty match is an error; what describes the expected text in
// its message.
func (p *npyParser) match(pattern *regexp.Regexp, what string) string {
	p.accept("")
	text := pattern.FindString(p.rest)
	if text == "" {
		p.fail(fmt.Errorf("want %s, found %.20q", what, p.rest))
	}
	if p.err != nil {
		return ""
	}
	p.rest = p.rest[len(text):]
	return text
}

func (p *npyParser) quoted() string {
	text := p.match(npyString, "a string")
	return text[min(1, len(text)):max(0, len(text)-1)]
}
