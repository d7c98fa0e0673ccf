package summary

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// Event is one scalar value that was read from a TensorBoard event file.
type Event struct {
	Step  int64
	Time  time.Time // time of the event; the zero time if the file has none or one that is out of range
	Tag   string
	Value float64
}

// maxRead is the number of bytes that one call of ReadEvents reads at most.
// ReadEvents skips larger records, which hold images or graphs and no scalars.
const maxRead = 1 << 20

// ReadEvents reads a TensorBoard event file, beginning at a byte offset, and
// calls the function each for every scalar. TensorFlow, PyTorch or a Writer
// may have written the file. A call reads at most 1 MiB.
//
// ReadEvents returns the offset of the first record that it has not read, with
// which the caller continues. If no complete record follows, as at the end of
// a file that is still being written, it returns its argument offset. An error
// names the damaged record; the records after it are unreadable.
func ReadEvents(r io.ReaderAt, offset int64, each func(Event)) (next int64, err error) {
	b, err := io.ReadAll(io.NewSectionReader(r, offset, maxRead))
	if err != nil {
		return offset, err
	}
	for next = offset; ; {
		size, err := recordSize(b)
		if err != nil {
			return next, fmt.Errorf("event file: record at byte %d: %w", next, err)
		}
		if size > maxRead && holds(r, next+size-1) {
			return next + size, nil
		}
		if size == 0 || size > int64(len(b)) {
			return next, nil
		}
		data, sum := b[recordHead:size-4], b[size-4:size]
		if masked(data) != binary.LittleEndian.Uint32(sum) {
			return next, fmt.Errorf("event file: record at byte %d: its checksum is wrong", next)
		}
		if err := readEvent(data, each); err != nil {
			return next, fmt.Errorf("event file: record at byte %d: %w", next, err)
		}
		b, next = b[size:], next+size
	}
}

// recordHead is the size of a record's header in bytes: 8 for the length of
// the data, 4 for the checksum of the length.
const recordHead = 12

// maxRecord is the largest valid size of a record's data in bytes. TensorFlow
// does not write larger protocol buffers.
const maxRecord = 1 << 31

// recordSize returns the size in bytes of the first record in b, with header
// and checksums. It returns 0 if b does not contain the whole header.
func recordSize(b []byte) (int64, error) {
	if len(b) < recordHead {
		return 0, nil
	}
	if masked(b[:8]) != binary.LittleEndian.Uint32(b[8:]) {
		return 0, errors.New("the checksum of its length is wrong")
	}
	n := binary.LittleEndian.Uint64(b)
	if n > maxRecord {
		return 0, fmt.Errorf("it has %d bytes, at most %d are allowed", n, int64(maxRecord))
	}
	return int64(n) + recordHead + 4, nil
}

// holds reports whether the file r is long enough to have a byte at offset.
func holds(r io.ReaderAt, offset int64) bool {
	n, _ := r.ReadAt(make([]byte, 1), offset) // an error is ignored, because the next read of the file returns it too
	return n == 1
}

// Besides the protocol buffer fields that a Writer writes, ReadEvents reads
// these fields. TensorFlow 2 writes a scalar as a tensor. SummaryMetadata
// names the plugin of TensorBoard that displays a value.
//
//	Value:           8 TensorProto, 9 SummaryMetadata
//	TensorProto:     1 dtype, 2 TensorShapeProto, 4 bytes tensor_content, 5 repeated float, 6 repeated double
//	TensorShapeProto: 2 repeated Dim, which has 1 int64 size
//	SummaryMetadata: 1 PluginData, which has 1 string plugin_name

// readEvent decodes the protocol buffer message Event in b and calls the
// function each for every scalar in the message.
func readEvent(b []byte, each func(Event)) error {
	var e Event
	var values [][]byte
	err := fields(b, func(f field) error {
		switch {
		case f.is(1, 1):
			e.Time = timeOf(math.Float64frombits(f.number))
		case f.is(2, 0):
			e.Step = int64(f.number)
		case f.is(5, 2):
			return fields(f.data, func(f field) error {
				if f.is(1, 2) {
					values = append(values, f.data)
				}
				return nil
			})
		}
		return nil
	})
	for _, v := range values {
		one, scalar, failed := readValue(v, e)
		if err = errors.Join(err, failed); err != nil {
			break
		}
		if scalar {
			each(one)
		}
	}
	return err
}

// readValue decodes one Value of an event into a copy of e, which has the
// event's step and time. It reports whether the value is a scalar.
func readValue(b []byte, e Event) (_ Event, scalar bool, err error) {
	plugin := ""
	err = fields(b, func(f field) (err error) {
		switch {
		case f.is(1, 2):
			e.Tag = strings.ToValidUTF8(string(f.data), "\ufffd")
		case f.is(2, 5):
			e.Value, scalar = float64(math.Float32frombits(uint32(f.number))), true
		case f.is(8, 2):
			e.Value, scalar, err = readTensor(f.data)
		case f.is(9, 2):
			plugin, err = pluginOf(f.data)
		}
		return err
	})
	return e, scalar && (plugin == "" || plugin == "scalars"), err
}

// readTensor decodes a TensorProto. It returns scalar true and the value if
// the tensor has exactly one element of type float32 or float64.
func readTensor(b []byte) (value float64, scalar bool, err error) {
	elements, width := uint64(1), 0
	var content []byte
	err = fields(b, func(f field) error {
		switch {
		case f.is(1, 0) && f.number == 1:
			width = 4
		case f.is(1, 0) && f.number == 2:
			width = 8
		case f.is(2, 2):
			return fields(f.data, func(f field) error {
				if !f.is(2, 2) {
					return nil
				}
				return fields(f.data, func(f field) error {
					if f.is(1, 0) && f.number != 1 {
						elements = 0
					}
					return nil
				})
			})
		case f.is(4, 2), f.is(5, 2), f.is(6, 2):
			content = append(content, f.data...)
		case f.is(5, 5):
			content = binary.LittleEndian.AppendUint32(content, uint32(f.number))
		case f.is(6, 1):
			content = binary.LittleEndian.AppendUint64(content, f.number)
		}
		return nil
	})
	if err != nil || elements != 1 || width == 0 || len(content) != width {
		return 0, false, err
	}
	if width == 4 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(content))), true, nil
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(content)), true, nil
}

// pluginOf returns the name of the TensorBoard plugin that displays a value,
// such as "scalars". It returns "" if the metadata names none.
func pluginOf(metadata []byte) (plugin string, err error) {
	err = fields(metadata, func(f field) error {
		if !f.is(1, 2) {
			return nil
		}
		return fields(f.data, func(f field) error {
			if f.is(1, 2) {
				plugin = string(f.data)
			}
			return nil
		})
	})
	return plugin, err
}

// timeOf converts Unix seconds to a time. It returns the zero time for NaN and
// for numbers out of range.
func timeOf(seconds float64) time.Time {
	if !(math.Abs(seconds) < 1<<40) {
		return time.Time{}
	}
	whole, rest := math.Modf(seconds)
	return time.Unix(int64(whole), int64(math.Round(rest*1e6))*1000)
}

// field is one field of an encoded protocol buffer message.
type field struct {
	key    uint64 // the field's number times 8, plus its wire type
	number uint64 // value of a field of wire type 0, 1 or 5 (integer or fixed size); the length of data for wire type 2
	data   []byte // contents of a field of wire type 2; a part of the message's buffer, not a copy
}

func (f field) is(number, wire uint64) bool { return f.key == number<<3|wire }

// fields decodes the protocol buffer message b and calls the function each for
// every field in order. It stops at the first error.
func fields(b []byte, each func(field) error) error {
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return errors.New("a key is cut")
		}
		b = b[n:]
		f := field{key: key}
		switch size := 0; key & 7 {
		case 0, 2:
			if f.number, size = binary.Uvarint(b); size <= 0 {
				return errors.New("a number is cut")
			}
			if b = b[size:]; key&7 == 2 {
				if f.number > uint64(len(b)) {
					return fmt.Errorf("a field of %d bytes is cut", f.number)
				}
				f.data, b = b[:f.number], b[f.number:]
			}
		case 1:
			if len(b) < 8 {
				return errors.New("a number is cut")
			}
			f.number, b = binary.LittleEndian.Uint64(b), b[8:]
		case 5:
			if len(b) < 4 {
				return errors.New("a number is cut")
			}
			f.number, b = uint64(binary.LittleEndian.Uint32(b)), b[4:]
		default:
			return fmt.Errorf("wire type %d is none of a field", key&7)
		}
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}
