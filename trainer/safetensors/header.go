package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
)

const (
	lengthSize  = 8       // bytes of the field with the header's length, at the beginning of the file
	maxHeader   = 1 << 24 // maximal length of the header in bytes
	metadataKey = "__metadata__"

	maxDimensions = 64 // largest number of dimensions of a tensor; NumPy has the same limit
)

// parseHeader parses the JSON text of a header, which must be valid UTF-8. It
// returns the tensors in the order of the text.
func parseHeader(text []byte) (metadata map[string]string, tensors []placed, err error) {
	p := &parser{text: text, json: json.NewDecoder(bytes.NewReader(text))}
	p.json.UseNumber()
	err = p.object(func(key string) (err error) {
		if key == metadataKey {
			if metadata, err = p.metadata(); err != nil {
				err = fmt.Errorf("metadata: %w", err)
			}
			return err
		}
		t, err := p.tensor(key)
		if err != nil {
			return fmt.Errorf("tensor %.100q: %w", key, err)
		}
		tensors = append(tensors, t)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	p.at = p.json.InputOffset()
	if rest := bytes.TrimLeft(text[p.at:], " \t\r\n"); len(rest) > 0 {
		return nil, nil, p.fault("%.20q after the end", rest)
	}
	return metadata, tensors, nil
}

func (p *parser) metadata() (map[string]string, error) {
	m := map[string]string{}
	err := p.object(func(key string) (err error) {
		m[key], err = p.string()
		return err
	})
	return m, err
}

// tensor parses the entry of one tensor and checks that its offsets fit its
// shape and type. It does not check that the offsets lie within the file.
func (p *parser) tensor(name string) (placed, error) {
	t := placed{Info: Info{Name: name}}
	if name == "" {
		return t, errors.New("no name")
	}
	var offsets []int64
	err := p.object(func(key string) (err error) {
		switch key {
		case "dtype":
			var dtype string
			dtype, err = p.string()
			t.Dtype = Dtype(dtype)
		case "shape":
			t.Shape, err = p.shape()
		case "data_offsets":
			offsets, err = p.numbers(2)
		default:
			return fmt.Errorf("unknown key %.100q", key)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", key, err)
		}
		return err
	})
	switch {
	case err != nil:
		return t, err
	case t.Dtype == "":
		return t, errors.New("no dtype")
	case t.Shape == nil:
		return t, errors.New("no shape")
	case len(offsets) != 2:
		return t, fmt.Errorf("%d data_offsets, want 2", len(offsets))
	}
	t.begin = offsets[0]
	if t.Size, err = sizeOf(t.Dtype, t.Shape); err == nil && offsets[1]-offsets[0] != t.Size {
		err = fmt.Errorf("data_offsets %v for %s %v, want %d bytes", offsets, t.Dtype, t.Shape, t.Size)
	}
	return t, err
}

// shape parses an array of dimensions. The result is never nil, even if it is
// empty.
func (p *parser) shape() ([]int, error) {
	all, err := p.numbers(maxDimensions)
	shape := make([]int, len(all))
	for i, n := range all {
		if shape[i] = int(n); int64(shape[i]) != n {
			return nil, p.fault("dimension %d is larger than this machine's numbers", n)
		}
	}
	return shape, err
}

// parser reads the header token by token. Decoding into structs is not strict
// enough: encoding/json would accept duplicate keys and ignore unknown ones.
type parser struct {
	text []byte
	json *json.Decoder
	at   int64 // offset of the latest token in text, including the separator before it
}

func (p *parser) fault(format string, args ...any) error {
	return fmt.Errorf("after byte %d: "+format, append([]any{p.at}, args...)...)
}

// next returns the next token of the header. It refuses strings that Go's
// decoder would change, so that they can be written again without a
// difference.
func (p *parser) next() (json.Token, error) {
	p.at = p.json.InputOffset()
	token, err := p.json.Token()
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return nil, p.fault("the text ends too early")
	case err != nil:
		return nil, p.fault("%w", err)
	}
	if s, ok := token.(string); ok && halfPair(s, p.text[p.at:p.json.InputOffset()]) {
		return nil, p.fault("an escape that is half a character")
	}
	return token, nil
}

// object parses an object. It calls the function each with every key; that
// function must parse the value. A duplicate key is an error.
func (p *parser) object(each func(key string) error) error {
	if err := p.expect('{', "an object"); err != nil {
		return err
	}
	seen := map[string]bool{}
	for p.json.More() {
		key, err := p.string()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("key %.100q: twice", key)
		}
		seen[key] = true
		if err := each(key); err != nil {
			return err
		}
	}
	return p.expect('}', "the end of an object")
}

func (p *parser) expect(delim json.Delim, what string) error {
	token, err := p.next()
	if err == nil && token != delim {
		err = p.fault("want %s", what)
	}
	return err
}

func (p *parser) string() (string, error) {
	token, err := p.next()
	s, ok := token.(string)
	if err == nil && !ok {
		err = p.fault("want a string")
	}
	return s, err
}

// numbers parses an array of non-negative integers. It returns an error if the
// array has more elements than the parameter most allows. The result is never
// nil, even if it is empty.
func (p *parser) numbers(most int) ([]int64, error) {
	all := []int64{}
	if err := p.expect('[', "an array"); err != nil {
		return nil, err
	}
	for p.json.More() {
		token, err := p.next()
		if err != nil {
			return nil, err
		}
		number, _ := token.(json.Number)
		n, err := strconv.ParseUint(number.String(), 10, 63)
		if err != nil {
			return nil, p.fault("want a whole number from 0 to %d", int64(math.MaxInt64))
		}
		if len(all) == most {
			return nil, p.fault("more than %d numbers", most)
		}
		all = append(all, int64(n))
	}
	return all, p.expect(']', "the end of an array")
}

var escape = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)

// halfPair reports whether a JSON string contains half of a surrogate pair,
// such as "\ud800". Go's decoder silently replaces it by U+FFFD. text is the
// string before decoding, s after it.
func halfPair(s string, text []byte) bool {
	meant := bytes.Count(text, []byte("\uFFFD"))
	for _, e := range escape.FindAll(text, -1) {
		if bytes.EqualFold(e, []byte(`\ufffd`)) {
			meant++
		}
	}
	return strings.Count(s, "\uFFFD") > meant
}

// Dtype is the type of a tensor's elements, with the name that the format
// gives it.
type Dtype string

// The types that plx's checkpoints use. Other types of the format can also be
// read and written, as bytes.
const (
	F32 Dtype = "F32"
	F64 Dtype = "F64"
	I64 Dtype = "I64"
	U64 Dtype = "U64"
	U8  Dtype = "U8"
)

// elementBits has the size in bits of every element type in the format.
// Elements of fewer than 8 bits are packed; their tensor must fill whole
// bytes.
var elementBits = map[Dtype]uint64{
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
	"BOOL": 8, U8: 8, "I8": 8,
	"F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
	"U16": 16, "I16": 16, "F16": 16, "BF16": 16,
	"U32": 32, "I32": 32, F32: 32,
	U64: 64, I64: 64, F64: 64, "C64": 64,
}

// sizeOf returns the size of a tensor in bytes. If one dimension is 0 the size
// is 0, but the product of the other dimensions must still not overflow,
// because a reader may multiply them first.
func sizeOf(dtype Dtype, shape []int) (int64, error) {
	size, known := elementBits[dtype]
	if !known {
		return 0, fmt.Errorf("unknown dtype %.20q", dtype)
	}
	if len(shape) > maxDimensions {
		return 0, fmt.Errorf("%d dimensions, at most %d are read", len(shape), maxDimensions)
	}
	empty := false
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v with a negative dimension", shape)
		}
		if d == 0 {
			empty = true
			continue
		}
		var over uint64
		if over, size = bits.Mul64(size, uint64(d)); over > 0 {
			return 0, fmt.Errorf("%s %v has more elements than a file can hold", dtype, shape)
		}
	}
	if empty {
		return 0, nil
	}
	if size%8 != 0 {
		return 0, fmt.Errorf("%s %v ends inside a byte", dtype, shape)
	}
	return int64(size / 8), nil
}
