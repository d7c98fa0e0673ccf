package data

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// message encodes a protocol buffer field of wire type 2.
func message(number int, parts ...any) []byte {
	content := join(parts...)
	b := binary.AppendUvarint([]byte{byte(number<<3 | wireBytes)}, uint64(len(content)))
	return append(b, content...)
}

// written encodes an example like TensorFlow, with packed numbers.
func (e Example) written() []byte {
	var entries []byte
	for _, name := range slices.Sorted(maps.Keys(e)) {
		f, list := e[name], []byte(nil)
		switch {
		case f.Bytes != nil:
			var values []byte
			for _, b := range f.Bytes {
				values = append(values, message(1, b)...)
			}
			list = message(1, values)
		case f.Floats != nil:
			var values []byte
			for _, x := range f.Floats {
				values = binary.LittleEndian.AppendUint32(values, math.Float32bits(x))
			}
			list = message(2, message(1, values))
		case f.Ints != nil:
			var values []byte
			for _, x := range f.Ints {
				values = binary.AppendUvarint(values, uint64(x))
			}
			list = message(3, message(1, values))
		}
		entries = append(entries, message(1, message(1, name), message(2, list))...)
	}
	return message(1, entries)
}

var example = Example{
	"id":     {Ints: []int64{0, -1, 300, math.MinInt64}},
	"pixels": {Floats: []float32{0.5, -2, float32(math.Inf(1))}},
	"words":  {Bytes: [][]byte{[]byte("one"), {}, []byte("\x00\xff")}},
	"none":   {},
}

func TestParseExample(t *testing.T) {
	for name, message := range map[string][]byte{
		"packed":             example.written(),
		"with other fields":  join(message(9, "other"), 0x50, 7, 0x5d, 1, 2, 3, 4, 0x59, 1, 2, 3, 4, 5, 6, 7, 8, example.written()), // field 10 is a varint; fields 11 have 4 and 8 bytes
		"in two parts":       join(Example{"id": example["id"], "none": {}}.written(), Example{"pixels": example["pixels"], "words": example["words"]}.written()),
		"an entry, replaced": join(Example{"id": {Floats: []float32{7}}}.written(), example.written()),
	} {
		if e, err := ParseExample(message); err != nil || !reflect.DeepEqual(e, example) {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
	// Encoded by hand after the specification of protocol buffers: {"a": int64
	// [3, 270], not packed}.
	b, _ := hex.DecodeString("0a0e" + "0a0c" + "0a0161" + "1207" + "1a05" + "0803" + "088e02")
	e, err := ParseExample(b)
	if err != nil || !reflect.DeepEqual(e, Example{"a": {Ints: []int64{3, 270}}}) {
		t.Errorf("%v, %v", e, err)
	}
	b, _ = hex.DecodeString("0a0e" + "0a0c" + "0a0161" + "1207" + "1205" + "0d0000c03f") // float 1.5, not packed
	if e, err := ParseExample(b); err != nil || !reflect.DeepEqual(e, Example{"a": {Floats: []float32{1.5}}}) {
		t.Errorf("%v, %v", e, err)
	}
	if e, err := ParseExample(nil); err != nil || len(e) != 0 {
		t.Errorf("no bytes are an example without features: %v, %v", e, err)
	}
}

func TestFeatures(t *testing.T) {
	e := Example{"label": {Ints: []int64{7}}, "image": {Bytes: [][]byte{[]byte("png")}}, "two": {Ints: []int64{1, 2}}}
	if x, err := e.Int("label"); x != 7 || err != nil {
		t.Errorf("%d, %v", x, err)
	}
	if b, err := e.OneBytes("image"); string(b) != "png" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	for name, want := range map[string]string{"none": `no feature "none"`, "two": `"two" has 2 int64, 0 float and 0 bytes, want one int64`} {
		if _, err := e.Int(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := e.OneBytes("label"); err == nil || !strings.Contains(err.Error(), "want one string of bytes") {
		t.Errorf("%v", err)
	}
}

func TestParseExampleErrors(t *testing.T) {
	for name, c := range map[string]struct {
		message []byte
		want    string
	}{
		"cut tag":         {join(0x80), "byte 0: no field begins here"},
		"field 0":         {join(0), "byte 0: no field begins here"},
		"group":           {join(0x0b), "byte 1: field 1 has wire type 3, which is not read"},
		"huge length":     {join(0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f), "byte 1: truncated: field 1 has 9223372036854775807 bytes, the message 0"},
		"endless length":  {join(0x0a, 0x80, 0x80), "byte 1: truncated"},
		"cut varint":      {join(0x08, 0x80), "byte 1: truncated: field 1 breaks off"},
		"long varint":     {join(0x08, bytes.Repeat([]byte{0xff}, 11)), "byte 1: truncated: field 1 breaks off"},
		"cut fixed32":     {join(0x15, 1, 2, 3), "byte 1: truncated: field 2 breaks off"},
		"cut fixed64":     {join(0x11, 1, 2, 3), "byte 1: truncated: field 2 breaks off"},
		"features varint": {join(0x08, 1), "byte 1: field 1 has wire type 0, want 2"},
		"key varint":      {message(1, message(1, join(0x08, 1))), "byte 5: field 1 has wire type 0, want 2"},
		"cut floats":      {message(1, message(1, message(2, message(2, message(1, "abcde"))))), "byte 10: 5 bytes are no whole number of floats"},
		"cut ints":        {message(1, message(1, message(2, message(3, message(1, 1, 0x80))))), "byte 10: a packed number is cut off"},
		"float as varint": {message(1, message(1, message(2, message(2, join(0x08, 1))))), "byte 9: field 1 has wire type 0, want 2"},
	} {
		if _, err := ParseExample(c.message); err == nil || !strings.Contains(err.Error(), "tf.train.Example: "+c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	whole := example.written()
	for cut := 1; cut < len(whole); cut++ {
		if e, err := ParseExample(whole[:cut]); err == nil {
			t.Errorf("cut to %d of %d bytes: %v", cut, len(whole), e)
		}
	}
}

// An example that is parsed, encoded and parsed again must not change.
func FuzzExample(f *testing.F) {
	f.Add(example.written())
	f.Add(join(0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f))
	f.Add(message(1, message(1, message(2, message(2, message(1, "abcdefgh"))))))
	f.Fuzz(func(t *testing.T, content []byte) {
		e, err := ParseExample(content)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "tf.train.Example: byte ") {
				t.Fatalf("the error names no byte: %v", err)
			}
			return
		}
		for _, x := range e {
			if len(x.Ints)+len(x.Floats)+len(x.Bytes) > len(content) {
				t.Fatalf("%d bytes hold %d numbers and strings", len(content), len(x.Ints)+len(x.Floats)+len(x.Bytes))
			}
		}
		again, err := ParseExample(e.written())
		if err != nil || !sameExample(again, e) {
			t.Fatalf("%v, written and read: %v, %v", e, again, err)
		}
	})
}

// sameExample compares bits: NaN equals NaN, and an empty list equals no list.
func sameExample(a, b Example) bool { return bytes.Equal(a.written(), b.written()) && len(a) == len(b) }
