package metrics

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"
	"time"
)

// encodingHead begins the encoding of a History, which consists of
//
//	"plxm" and one byte with the version
//	the newest values: their count, then the name and value of each
//	the series: their count, then for each its name, stride, filled and count of points;
//	for each point its step and time (milliseconds since 1970), both as differences to the
//	previous point, then either 1 and the values Min, Max and Last, or 0 and a single value
//	to which all three are equal
//	four bytes with the CRC-32C of the bytes before
//
// Integers are varints. Values are 8-byte floats, little-endian. A name is
// preceded by its length.
const encodingHead = "plxm\x01"

// MaxEncoded is the maximum size in bytes of the encoding of a History.
const MaxEncoded = 8 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendBinary appends the encoding of the history to b. Its error is always
// nil; the result type is that of encoding.BinaryAppender.
func (h *History) AppendBinary(b []byte) ([]byte, error) {
	start := len(b)
	b = append(b, encodingHead...)
	b = binary.AppendUvarint(b, uint64(len(h.newest)))
	for _, name := range slices.Sorted(maps.Keys(h.newest)) {
		b = appendValue(appendName(b, name), h.newest[name])
	}
	b = binary.AppendUvarint(b, uint64(len(h.series)))
	for _, name := range slices.Sorted(maps.Keys(h.series)) {
		b = h.series[name].append(appendName(b, name))
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli)), nil
}

// Within returns the encoding of the history in at most limit bytes. If the
// encoding is longer, Within first merges neighbouring points. If even one
// point for each metric does not fit, the result exceeds limit.
func (h *History) Within(limit int) []byte {
	small := History{newest: h.newest, series: maps.Clone(h.series)}
	for {
		b, _ := small.AppendBinary(nil) // the error is ignored: it is always nil
		if len(b) <= limit {
			return b
		}
		longest := 0
		for _, s := range small.series {
			longest = max(longest, len(s.points))
		}
		if longest <= 1 {
			return b
		}
		for name, s := range small.series {
			if len(s.points) > longest/2 {
				small.series[name] = s.halved()
			}
		}
	}
}

// halved returns a copy of the series with half as many points: each point of
// the copy summarizes two neighbouring ones.
func (s *series) halved() *series {
	half := &series{stride: 2 * s.stride, filled: s.filled}
	for i := 0; i < len(s.points); i += 2 {
		if i+1 == len(s.points) {
			half.points = append(half.points, s.points[i])
			continue
		}
		half.points = append(half.points, merge(s.points[i], s.points[i+1]))
		half.filled = s.stride + s.filled
	}
	if len(s.points)%2 == 1 {
		half.filled = s.filled
	}
	return half
}

func appendName(b []byte, name string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(name))), name...)
}

func appendValue(b []byte, n Number) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n)))
}

func (s *series) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(s.stride))
	b = binary.AppendUvarint(b, uint64(s.filled))
	b = binary.AppendUvarint(b, uint64(len(s.points)))
	var step, at int64
	for _, p := range s.points {
		b = binary.AppendVarint(b, p.Step-step)
		b = binary.AppendVarint(b, p.Time.UnixMilli()-at)
		step, at = p.Step, p.Time.UnixMilli()
		if sameBits(p.Min, p.Last) && sameBits(p.Max, p.Last) {
			b = append(b, 0)
		} else {
			b = appendValue(appendValue(append(b, 1), p.Min), p.Max)
		}
		b = appendValue(b, p.Last)
	}
	return b
}

func sameBits(a, b Number) bool { return math.Float64bits(float64(a)) == math.Float64bits(float64(b)) }

// UnmarshalBinary replaces the history by the one that is encoded in b. On an
// error the history does not change.
func (h *History) UnmarshalBinary(b []byte) error {
	decoded, err := decode(b)
	if err != nil {
		return fmt.Errorf("history of metrics: %w", err)
	}
	*h = decoded
	return nil
}

func decode(b []byte) (h History, err error) {
	const least = len(encodingHead) + crc32.Size
	switch {
	case len(b) > MaxEncoded:
		return h, fmt.Errorf("%d bytes, at most %d are allowed", len(b), MaxEncoded)
	case len(b) < least || string(b[:4]) != encodingHead[:4]:
		return h, errors.New("it is not a history, or empty")
	case b[4] != encodingHead[4]:
		return h, fmt.Errorf("it has version %d, this plx reads %d", b[4], encodingHead[4])
	}
	content, sum := b[:len(b)-crc32.Size], binary.LittleEndian.Uint32(b[len(b)-crc32.Size:])
	if crc32.Checksum(content, castagnoli) != sum {
		return h, errors.New("its checksum is wrong")
	}
	d := decoder{b: content[len(encodingHead):]}
	h = History{newest: map[string]Number{}, series: map[string]*series{}}
	for range d.count(maxNames + 4) {
		name := d.name()
		h.newest[name] = d.value()
	}
	for range d.count(maxNames) {
		name := d.name()
		h.series[name] = d.series()
	}
	if d.bad || len(d.b) > 0 {
		return History{}, errors.New("its content is malformed")
	}
	return h, nil
}

// decoder reads an encoded History. After the first malformed field, bad is
// true and all methods return zero values.
type decoder struct {
	b   []byte
	bad bool
}

// count reads an unsigned integer. A value above limit is malformed.
func (d *decoder) count(limit uint64) int64 {
	v, n := binary.Uvarint(d.b)
	if d.bad = d.bad || n <= 0 || v > limit; d.bad {
		return 0
	}
	d.b = d.b[n:]
	return int64(v)
}

func (d *decoder) name() string {
	b := d.take(int(d.count(maxName)))
	d.bad = d.bad || !validName(string(b))
	return string(b)
}

func (d *decoder) value() Number {
	b := d.take(8)
	if d.bad {
		return 0
	}
	return Number(math.Float64frombits(binary.LittleEndian.Uint64(b)))
}

func (d *decoder) take(n int) []byte {
	if d.bad = d.bad || n > len(d.b); d.bad {
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

// delta reads a signed integer, which is the difference between the values of
// two neighbouring points.
func (d *decoder) delta() int64 {
	v, n := binary.Varint(d.b)
	if d.bad = d.bad || n <= 0; d.bad {
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) series() *series {
	s := &series{stride: d.count(1 << 40), filled: d.count(1 << 40)}
	n := d.count(maxPoints)
	d.bad = d.bad || n == 0 || s.stride == 0 || s.filled == 0 || s.filled > s.stride
	var step, at int64
	for i := int64(0); i < n && !d.bad; i++ {
		step, at = step+d.delta(), at+d.delta()
		p := Point{Step: step, Time: time.UnixMilli(at)}
		spread := d.count(1) == 1
		if spread {
			p.Min, p.Max = d.value(), d.value()
		}
		if p.Last = d.value(); !spread {
			p.Min, p.Max = p.Last, p.Last
		}
		s.points = append(s.points, p)
	}
	return s
}
