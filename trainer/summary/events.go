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

// Event is one scalar of an event file.
type Event struct {
	Step  int64
	Time  time.Time // zero: the file has no sensible one
	Tag   string
	Value float64
}

// maxRead bounds what one call of ReadEvents reads. A record that does not fit is an image,
// a graph or the like: it is skipped unread.
const maxRead = 1 << 20

// ReadEvents reads records of an event file from offset on, which TensorFlow, PyTorch or a
// Writer has written, and calls each for every scalar. It returns the offset of the first
// record that it has not read: that is offset itself if no whole record follows, as at the
// end of a file that is being written. A call reads 1 MiB at most. An error says which
// record is damaged; what follows it cannot be read.
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

// recordHead is the size of what stands before the data of a record, in bytes.
const recordHead = 12

// maxRecord bounds the data of a record: TensorFlow's limit of a protocol buffer.
const maxRecord = 1 << 31

// recordSize returns the size of the record that b begins with; 0: its head is incomplete.
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

// holds reports whether a file has a byte at offset.
func holds(r io.ReaderAt, offset int64) bool {
	n, _ := r.ReadAt(make([]byte, 1), offset) // the next read meets the same error
	return n == 1
}

// The fields that ReadEvents knows beside those that are written: tensors, which
// TensorFlow 2 writes instead of numbers, and what a value is meant for.
//
//	Value:           8 TensorProto, 9 SummaryMetadata
//	TensorProto:     1 dtype, 2 TensorShapeProto, 4 bytes tensor_content, 5 repeated float, 6 repeated double
//	TensorShapeProto: 2 repeated Dim, which has 1 int64 size
//	SummaryMetadata: 1 PluginData, which has 1 string plugin_name

// readEvent calls each for every scalar of an Event.
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

// readValue reads a Value of an event. It reports whether the value is a scalar.
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

// readTensor returns the number of a tensor of one element, a float32 or float64.
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

// pluginOf returns the part of TensorBoard that a value is meant for; "": it does not say.
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

// timeOf converts Unix seconds.
func timeOf(seconds float64) time.Time {
	if !(math.Abs(seconds) < 1<<40) {
		return time.Time{}
	}
	whole, rest := math.Modf(seconds)
	return time.Unix(int64(whole), int64(math.Round(rest*1e6))*1000)
}

// field is a field of a protocol buffer.
type field struct {
	key    uint64 // the field's number times 8, plus its wire type
	number uint64 // of the wire types 0, 1 and 5
	data   []byte // of the wire type 2, within the buffer
}

func (f field) is(number, wire uint64) bool { return f.key == number<<3|wire }

// fields calls each for the fields of a protocol buffer.
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
