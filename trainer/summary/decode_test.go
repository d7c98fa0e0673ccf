package summary

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"unicode/utf8"
)

// decodedEvent is an event as the decoder of the tests reads it. That decoder
// shares no code with the encoder; it follows the definition of the file
// format.

type decodedEvent struct {
	time    float64
	step    int64
	version string
	tags    []string
	values  map[string]float32
	// for each tag: the fields from Least to SumOfSquares, then bounds, then
	// counts
	histograms map[string][3][]float64
	graph      []byte
}

// decodeEvents reads a whole file.
func decodeEvents(b []byte) ([]decodedEvent, error) {
	var events []decodedEvent
	for len(b) > 0 {
		if len(b) < 12 {
			return events, errors.New("the head is cut")
		}
		length := binary.LittleEndian.Uint64(b)
		if err := checkSum(b[:8], b[8:12]); err != nil {
			return events, fmt.Errorf("length: %w", err)
		}
		b = b[12:]
		if length > 1<<24 || uint64(len(b)) < length+4 {
			return events, fmt.Errorf("%d bytes are not there", length)
		}
		data := b[:length]
		if err := checkSum(data, b[length:length+4]); err != nil {
			return events, fmt.Errorf("data: %w", err)
		}
		b = b[length+4:]
		e, err := decodeEvent(data)
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

// checkSum verifies a masked checksum. It removes the mask from sum, instead
// of masking as the encoder does.
func checkSum(data, sum []byte) error {
	turned := binary.LittleEndian.Uint32(sum) - 0xa282ead8
	if got, want := crc32.Checksum(data, crc32.MakeTable(0x82f63b78)), turned<<15|turned>>17; got != want {
		return fmt.Errorf("checksum %08x, want %08x", got, want)
	}
	return nil
}

// fieldsOf calls give for each field of the protocol buffer b: with data for
// wire type 2, and with the number n for the others.
func fieldsOf(b []byte, give func(number, wire uint64, n uint64, data []byte) error) error {
	for len(b) > 0 {
		key, size := binary.Uvarint(b)
		if size <= 0 {
			return errors.New("a key is cut")
		}
		b = b[size:]
		var n uint64
		var data []byte
		switch key & 7 {
		case 0:
			if n, size = binary.Uvarint(b); size <= 0 {
				return errors.New("a varint is cut")
			}
		case 1:
			if size = 8; len(b) < 8 {
				return errors.New("eight bytes are cut")
			}
			n = binary.LittleEndian.Uint64(b)
		case 2:
			length, head := binary.Uvarint(b)
			if head <= 0 || length > uint64(len(b)-head) {
				return errors.New("bytes are cut")
			}
			size = head + int(length)
			data = b[head:size]
		case 5:
			if size = 4; len(b) < 4 {
				return errors.New("four bytes are cut")
			}
			n = uint64(binary.LittleEndian.Uint32(b))
		default:
			return fmt.Errorf("wire type %d", key&7)
		}
		if err := give(key>>3, key&7, n, data); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

func decodeEvent(b []byte) (e decodedEvent, err error) {
	e.values = map[string]float32{}
	err = fieldsOf(b, func(number, wire, n uint64, data []byte) error {
		switch [2]uint64{number, wire} {
		case [2]uint64{1, 1}:
			e.time = math.Float64frombits(n)
		case [2]uint64{2, 0}:
			e.step = int64(n)
		case [2]uint64{3, 2}:
			e.version = string(data)
		case [2]uint64{4, 2}:
			e.graph = data
		case [2]uint64{5, 2}:
			return fieldsOf(data, func(number, wire, _ uint64, value []byte) error {
				if number != 1 || wire != 2 {
					return fmt.Errorf("summary: field %d of wire type %d", number, wire)
				}
				return e.decodeValue(value)
			})
		default:
			return fmt.Errorf("event: field %d of wire type %d", number, wire)
		}
		return nil
	})
	return e, err
}

func (e *decodedEvent) decodeValue(b []byte) error {
	var tag string
	var simple float32
	var histogram []byte
	err := fieldsOf(b, func(number, wire, n uint64, data []byte) error {
		switch [2]uint64{number, wire} {
		case [2]uint64{1, 2}:
			tag = string(data)
		case [2]uint64{2, 5}:
			simple = math.Float32frombits(uint32(n))
		case [2]uint64{5, 2}:
			histogram = data
		default:
			return fmt.Errorf("value: field %d of wire type %d", number, wire)
		}
		return nil
	})
	if !utf8.ValidString(tag) {
		return fmt.Errorf("tag %q is not UTF-8", tag)
	}
	if histogram != nil {
		return errors.Join(err, e.decodeHistogram(tag, histogram))
	}
	e.tags = append(e.tags, tag)
	e.values[tag] = simple
	return err
}

func (e *decodedEvent) decodeHistogram(tag string, b []byte) error {
	var parts [3][]float64
	err := fieldsOf(b, func(number, wire, n uint64, data []byte) error {
		switch {
		case wire == 1 && number == uint64(len(parts[0]))+1 && number <= 5:
			parts[0] = append(parts[0], math.Float64frombits(n))
		case wire == 2 && (number == 6 || number == 7) && len(data)%8 == 0:
			for ; len(data) > 0; data = data[8:] {
				parts[number-5] = append(parts[number-5], math.Float64frombits(binary.LittleEndian.Uint64(data)))
			}
		default:
			return fmt.Errorf("histogram: field %d of wire type %d", number, wire)
		}
		return nil
	})
	if e.histograms == nil {
		e.histograms = map[string][3][]float64{}
	}
	e.histograms[tag] = parts
	return err
}
