package data

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// npy builds the bytes of a .npy file.
func npy(version int, header string, values ...any) []byte {
	b := join(npyMagic, version, 0)
	if version == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	}
	return join(append([]any{b, header}, values...)...)
}

func TestReadNPY(t *testing.T) {
	le, be := binary.LittleEndian, binary.BigEndian
	third := math.Float32bits(1.0 / 3)
	for name, c := range map[string]struct {
		content []byte
		want    array
	}{
		"version 1": {npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }   \n", le.AppendUint32(nil, third)), array{[]int{1}, []float32{1.0 / 3}}},
		"version 2": {npy(2, "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", be.AppendUint32(nil, third)), array{[]int{1}, []float32{1.0 / 3}}},
		"version 3": {npy(3, `{"shape":(2,1),"fortran_order":False,"descr":"<f8"}`, make([]byte, 16)), array{[]int{2, 1}, []float64{0, 0}}},
		"int32":     {npy(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (), }", 255, 255, 255, 255), array{[]int{}, []int32{-1}}},
		"int64":     {npy(1, "{'descr': '<i8', 'fortran_order': False, 'shape': (1L,), }", 0, 1, 0, 0, 0, 0, 0, 0x80), array{[]int{1}, []int64{math.MinInt64 + 256}}},
		"uint8":     {npy(1, "{'descr': '|u1', 'fortran_order': True, 'shape': (3,)}", "abc"), array{[]int{3}, []uint8("abc")}},
		"none":      {npy(1, "{'descr': '|i1', 'fortran_order': False, 'shape': (3, 0, 2,)}"), array{[]int{3, 0, 2}, []int8{}}},
	} {
		a, err := readFile(file(t, "x.npy", c.content), decodeNPY)
		if err != nil || !reflect.DeepEqual(*a, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, a, err, c.want)
		}
	}
}

func TestReadNPYErrors(t *testing.T) {
	read := func(path string) error { _, err := readFile(path, decodeNPY); return err }
	header := func(s string) []byte { return npy(1, s, "12345678") }
	checkFaults(t, []faulty{
		{"nothing", nil, ": byte 0: NumPy magic and version: truncated", ""},
		{"foreign", join("PK\x03\x04 and more"), ": byte 0: not a .npy file: it begins with 50 4b 03 04", ".npz"},
		{"version", join(npyMagic, 4, 0, 0, 0), ": byte 8: version 4 of .npy, want 1, 2 or 3", ""},
		{"huge header", join(npyMagic, 2, 0, 255, 255, 255, 255), ": byte 12: NumPy header of 4294967295 bytes, at most 10000", ""},
		{"cut header", join(npyMagic, 1, 0, 100, 0, "{'descr'"), ": byte 10: NumPy header: truncated: want 100 bytes, the file has 8", ""},
		{"fortran", header("{'descr': '<f8', 'fortran_order': True, 'shape': (1, 1), }"), "Fortran order", "ascontiguousarray"},
		{"objects", header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"), "pickles are not read", "astype"},
		{"type", header("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }"), `element type "<c8", want`, "astype"},
		{"records", header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }"), "named fields", ""},
		{"no comma", header("{'descr': '<f8', 'fortran_order': False, 'shape': (1), }"), "want a tuple", ""},
		{"missing", header("{'descr': '<f8', 'shape': (1,), }"), `"fortran_order" is missing`, ""},
		{"twice", header("{'descr': '<f8', 'descr': '<f8'}"), "twice", ""},
		{"unknown", header("{'color': 1}"), `unknown key "color"`, ""},
		{"code", header("__import__('os')"), `want "{", found "__import__`, ""},
		{"after", header("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), } or 1"), "follows the dictionary", ""},
		{"negative", header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }"), "want a tuple", ""},
		{"large", header("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }"), "elements that are read at most", ""},
		{"larger", header("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,), }"), "length 99999999999999999999 of a dimension is too large", ""},
		{"deep", header("{'descr': '<f8', 'fortran_order': False, 'shape': (" + strings.Repeat("1,", 33) + "), }"), "33 dimensions, at most 32 are read", ""},
		{"short", header("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }"), "float64 values of shape [2]: truncated: want 16 bytes, the file has 8", ""},
		{"long", header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"), "more bytes follow the values", ""},
	}, read)
	checkBrokenPacking(t, header("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }"), read)
}

func TestArrayConvertsToFloat32(t *testing.T) {
	for _, values := range []any{[]uint8{7}, []int8{7}, []int16{7}, []int32{7}, []int64{7}, []float32{7}, []float64{7}} {
		a := &array{[]int{1}, values}
		if got := a.float32s(); len(got) != 1 || got[0] != 7 {
			t.Errorf("%T: %v", values, got)
		}
	}
}

func TestReadNPYAsRows(t *testing.T) {
	le := binary.LittleEndian
	matrix := func(shape string, values ...float32) []byte {
		b := npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': "+shape+", }")
		for _, x := range values {
			b = le.AppendUint32(b, math.Float32bits(x))
		}
		return b
	}
	table, err := ReadNPY(file(t, "x.npy", matrix("(2, 3)", 1, 2, 3, 4, 5, 6)))
	if err != nil {
		t.Fatal(err)
	}
	if row, err := table.At(1); err != nil || !slices.Equal(row, []float32{4, 5, 6}) || table.Len() != 2 {
		t.Errorf("%v, %v", row, err)
	}
	infinite := matrix("(2, 2)", 1, 2, 3, float32(math.Inf(1)))
	checkFaults(t, []faulty{
		{"vector", matrix("(2,)", 1, 2), ": byte 0: an array of shape [2], want two dimensions", "reshape"},
		{"no rows", matrix("(0, 3)"), ": byte 0: an array of shape [0 3]", ""},
		{"infinite", infinite, fmt.Sprintf(": byte %d: row 1, column 1: +Inf is not finite", len(infinite)-4), ""},
	}, func(path string) error { _, err := ReadNPY(path); return err })
}
