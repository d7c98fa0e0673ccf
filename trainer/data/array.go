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

// array is the numbers of an IDX or NumPy file, in row-major order.
type array struct {
	shape  []int // the slowest dimension first; empty for a single number
	values any   // a slice of an element type, as long as the product of the shape
}

// number is an element type of an array.
type number interface {
	uint8 | int8 | int16 | int32 | int64 | float32 | float64
}

// float32s returns the values as float32, rounded to the nearest.
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

// maxDimensions is NumPy's own bound; IDX allows 255.
const maxDimensions = 32

// elements returns the product of a shape. It refuses negative lengths and a
// product above max.
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

// element is a type of number in files.
type element struct {
	name   string
	size   int                                        // bytes of a number
	decode func(order binary.ByteOrder, b []byte) any // b holds whole elements
}

// elementTypes are the element types of both formats, by NumPy's name.
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
		binary.Decode(b, order, values) // cannot fail: b is as long as values
		return values
	}}
}

// takeArray reads the elements of a shape. They are the rest of a file.
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

// idxTypes are the element types of IDX, by their code.
var idxTypes = map[byte]string{0x08: "u1", 0x09: "i1", 0x0b: "i2", 0x0c: "i4", 0x0d: "f4", 0x0e: "f8"}

// readIDX reads a file in the IDX format of the MNIST data, packed with gzip or
// not. The file holds two zero bytes, the element type, the number of
// dimensions, the length of each as a big-endian uint32, and the elements,
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

// npyMagic begins a file of NumPy's .npy format ("NEP 1, a simple file format
// for NumPy arrays", and the module numpy.lib.format for versions 2 and 3).
const npyMagic = "\x93NUMPY"

// maxNPYHeader bounds the header. NumPy has the same bound for files that it
// does not trust.
const maxNPYHeader = 10000

// ReadNPY reads a .npy file of version 1, 2 or 3, packed with gzip or not: a matrix
// of int8, int16, int32, int64, uint8, float32 or float64 of either byte order, in
// C order. It refuses Fortran order, pickled objects, and numbers that are not
// finite in float32.
func ReadNPY(path string) (*Table, error) { return readFile(path, decodeMatrix) }

// decodeMatrix reads an array of two dimensions.
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
		if x-x != 0 { // NaN or an infinity
			after := len(t.Values) - i // numbers up to the end of the file
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

// takeNPYHeader reads up to the first value and returns the header's text.
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

// element returns the header's element type. NumPy writes |, < or > for the
// byte order, then a letter and a size for the type.
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

// parseNPYHeader reads a dictionary with three keys, each once and in any
// order.
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

// value reads the value of a key.
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

// The values of a header: Python strings without escapes, True and False, and
// tuples of whole numbers, which Python 2 wrote like 3L. In Python, (3) is a
// number and not a tuple.
var (
	npyString = regexp.MustCompile(`^('[^'\\\n]*'|"[^"\\\n]*")`)
	npyTruth  = regexp.MustCompile(`^(True|False)`)
	npyTuple  = regexp.MustCompile(`^\(\s*((\d+L?\s*,\s*)+(\d+L?\s*)?)?\)`)
	npyLength = regexp.MustCompile(`\d+`)
)

// npyParser reads a header from the left. After an error it reads nothing more.
type npyParser struct {
	rest string // the part of the header that is not read yet
	err  error  // the first error; nil means none
}

func (p *npyParser) fail(err error) { p.err = cmp.Or(p.err, err) }

// accept skips blanks and then the token, if it is there.
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

// match reads what a pattern matches, at least one byte.
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
