package data

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Example is a decoded tf.train.Example: it maps names to features. Exactly
// one of a Feature's three fields is set.
type Example map[string]Feature

// Feature holds the values of one feature, all of the same type.
type Feature struct {
	Ints   []int64
	Floats []float32
	Bytes  [][]byte // slices of the encoded message, not copies
}

// Int returns the value of the feature with this name. It is an error if the
// feature does not hold exactly one int64.
func (e Example) Int(name string) (int64, error) {
	if f := e[name]; len(f.Ints) == 1 {
		return f.Ints[0], nil
	}
	return 0, e.lacks(name, "one int64")
}

// OneBytes returns the value of the feature with this name. It is an error if
// the feature does not hold exactly one byte string.
func (e Example) OneBytes(name string) ([]byte, error) {
	if f := e[name]; len(f.Bytes) == 1 {
		return f.Bytes[0], nil
	}
	return nil, e.lacks(name, "one string of bytes")
}

func (e Example) lacks(name, want string) error {
	f, ok := e[name]
	if !ok {
		return fmt.Errorf("the example has no feature %q", name)
	}
	return fmt.Errorf("feature %q has %d int64, %d float and %d bytes, want %s", name, len(f.Ints), len(f.Floats), len(f.Bytes), want)
}

// ParseExample decodes a tf.train.Example in protocol buffer encoding. The
// memory it allocates is proportional to the length of the message. An error
// names a byte offset in the message. Unknown fields are ignored, as in other
// readers. The message is
//
//	Example   { Features features = 1; }
//	Features  { map<string, Feature> feature = 1; }
//	Feature   { oneof { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
//
// and each of the lists holds its values as field 1. Numbers may be packed.
func ParseExample(message []byte) (Example, error) {
	e := Example{}
	err := (field{wire: wireBytes, bytes: message}).each(func(f field) error {
		if f.number != 1 {
			return nil
		}
		return f.each(func(f field) error {
			if f.number != 1 {
				return nil
			}
			return e.add(f)
		})
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// add decodes one entry of the message's map of features and stores it in e.
func (e Example) add(entry field) error {
	var name string
	var value Feature
	err := entry.each(func(f field) error {
		switch f.number {
		case 1:
			name = string(f.bytes)
			return f.check(wireBytes)
		case 2:
			return f.each(value.add)
		}
		return nil
	})
	e[name] = value
	return err
}

// add decodes a list of values, one of the three kinds, into x. If x already
// holds values of another kind, add drops them.
func (x *Feature) add(list field) error {
	switch list.number {
	case 1:
		x.Ints, x.Floats = nil, nil
		return list.each(x.addBytes)
	case 2:
		x.Ints, x.Bytes = nil, nil
		return list.each(x.addFloats)
	case 3:
		x.Floats, x.Bytes = nil, nil
		return list.each(x.addInts)
	}
	return nil
}

func (x *Feature) addBytes(f field) error {
	if f.number != 1 {
		return nil
	}
	x.Bytes = append(x.Bytes, f.bytes)
	return f.check(wireBytes)
}

func (x *Feature) addFloats(f field) error {
	if f.number != 1 {
		return nil
	}
	if f.wire == wire32 {
		x.Floats = append(x.Floats, math.Float32frombits(uint32(f.value)))
		return nil
	}
	if len(f.bytes)%4 != 0 {
		return f.wrong("%d bytes are no whole number of floats", len(f.bytes))
	}
	x.Floats = slices.Grow(x.Floats, len(f.bytes)/4)
	for b := f.bytes; len(b) > 0; b = b[4:] {
		x.Floats = append(x.Floats, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return f.check(wireBytes)
}

func (x *Feature) addInts(f field) error {
	if f.number != 1 {
		return nil
	}
	if f.wire == wireVarint {
		x.Ints = append(x.Ints, int64(f.value))
		return nil
	}
	for b := f.bytes; len(b) > 0; {
		value, n := binary.Uvarint(b)
		if n <= 0 {
			return f.wrong("a packed number is cut off or too large")
		}
		x.Ints, b = append(x.Ints, int64(value)), b[n:]
	}
	return f.check(wireBytes)
}

// Wire types of protocol buffers that ParseExample reads. It rejects groups,
// types 3 and 4.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5
)

// field is one decoded field of a protocol buffer message.
type field struct {
	number uint64
	wire   uint64
	value  uint64 // value of the field, if wire is not wireBytes
	bytes  []byte // value of the field, if wire is wireBytes
	at     int    // offset of the value in the outermost message, in bytes
}

func (f field) wrong(format string, args ...any) error {
	return fmt.Errorf("tf.train.Example: byte %d: %w", f.at, fmt.Errorf(format, args...))
}

func (f field) check(wire uint64) error {
	if f.wire != wire {
		return f.wrong("field %d has wire type %d, want %d", f.number, f.wire, wire)
	}
	return nil
}

// each decodes the bytes of f as a message and calls do with each of its
// fields.
func (f field) each(do func(field) error) error {
	if err := f.check(wireBytes); err != nil {
		return err
	}
	for at := 0; at < len(f.bytes); {
		one, n, err := f.next(at)
		if err == nil {
			err = do(one)
		}
		if err != nil {
			return err
		}
		at += n
	}
	return nil
}

// next decodes the field that begins at offset at in the bytes of f. It
// returns the field and its encoded length, tag included.
func (f field) next(at int) (one field, n int, err error) {
	b := f.bytes[at:]
	one.at = f.at + at
	tag, n := binary.Uvarint(b)
	one.number, one.wire = tag>>3, tag&7
	if n <= 0 || one.number == 0 || one.number >= 1<<29 {
		return one, 0, one.wrong("no field begins here")
	}
	one.at += n
	size := 0 // length of the encoded value, in bytes
	switch one.wire {
	case wireVarint:
		one.value, size = binary.Uvarint(b[n:])
	case wire32:
		if size = min(4, len(b)-n); size == 4 {
			one.value = uint64(binary.LittleEndian.Uint32(b[n:]))
		}
	case wire64:
		size = min(8, len(b)-n) // the value is skipped: no message that ParseExample reads has a field of this type
	case wireBytes:
		length, k := binary.Uvarint(b[n:])
		if k <= 0 || length > uint64(len(b)-n-k) {
			return one, 0, one.wrong("truncated: field %d has %d bytes, the message %d", one.number, length, len(b)-n-max(0, k))
		}
		n, one.at = n+k, one.at+k
		size = int(length)
		one.bytes = b[n : n+size : n+size]
	default:
		return one, 0, one.wrong("field %d has wire type %d, which is not read", one.number, one.wire)
	}
	if size < 0 || size == 0 && one.wire != wireBytes || one.wire == wire32 && size < 4 || one.wire == wire64 && size < 8 {
		return one, 0, one.wrong("truncated: field %d breaks off", one.number)
	}
	return one, n + size, nil
}
