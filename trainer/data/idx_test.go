package data

import (
	"encoding/binary"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestReadIDX(t *testing.T) {
	be := binary.BigEndian
	for name, c := range map[string]struct {
		content []byte
		want    array
	}{
		"bytes":   {join(0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255), array{[]int{2, 3}, []uint8{1, 2, 3, 4, 5, 255}}},
		"signed":  {join(0, 0, 9, 1, 0, 0, 0, 2, 127, 255), array{[]int{2}, []int8{127, -1}}},
		"shorts":  {join(0, 0, 0x0b, 1, 0, 0, 0, 2, 1, 0, 0xff, 0xfe), array{[]int{2}, []int16{256, -2}}},
		"ints":    {join(0, 0, 0x0c, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe), array{[]int{1}, []int32{-2}}},
		"floats":  {join(0, 0, 0x0d, 1, 0, 0, 0, 1, be.AppendUint32(nil, math.Float32bits(-1.5))), array{[]int{1}, []float32{-1.5}}},
		"doubles": {join(0, 0, 0x0e, 1, 0, 0, 0, 1, be.AppendUint64(nil, math.Float64bits(0.1))), array{[]int{1}, []float64{0.1}}},
		"empty":   {join(0, 0, 8, 2, 0, 0, 0, 0, 0, 0, 0, 3), array{[]int{0, 3}, []uint8{}}},
		"scalar":  {join(0, 0, 8, 0, 7), array{[]int{}, []uint8{7}}},
	} {
		for _, content := range [][]byte{c.content, zip(t, c.content)} {
			a, err := readIDX(file(t, "x", content))
			if err != nil || !reflect.DeepEqual(*a, c.want) {
				t.Errorf("%s: %v, %v, want %v", name, a, err, c.want)
			}
		}
	}
}

func TestReadIDXErrors(t *testing.T) {
	read := func(path string) error { _, err := readIDX(path); return err }
	checkFaults(t, []faulty{
		{"nothing", nil, ": byte 0: IDX header: truncated: want 4 bytes, the file has 0", ""},
		{"header", join(0, 0, 8), ": byte 0: IDX header: truncated: want 4 bytes, the file has 3", ""},
		{"foreign", join("PNG!"), ": byte 0: not an IDX file: it begins with 50 4e 47 21", "train-images"},
		{"type", join(0, 0, 0x0a, 1, 0, 0, 0, 0), ": byte 0: not an IDX file: it begins with 00 00 0a 01", ""},
		{"dimensions", join(0, 0, 8, 3, 0, 0), ": byte 4: lengths of the dimensions: truncated: want 12 bytes, the file has 2", ""},
		{"values", join(0, 0, 8, 1, 0, 0, 0, 9, "abc"), ": byte 8: uint8 values of shape [9]: truncated: want 9 bytes, the file has 3", ""},
		{"longer", join(0, 0, 8, 1, 0, 0, 0, 2, "abc"), ": byte 10: more bytes follow the values", ""},
		{"oversized", join(0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255), ": byte 16: shape [4294967295 4294967295 4294967295]: more than the 17179869184 elements", ""},
		{"too deep", join(0, 0, 8, 33, make([]byte, 33*4)), ": byte 136: 33 dimensions, at most 32", ""},
	}, read)
	checkBrokenPacking(t, join(0, 0, 8, 1, 0, 0, 0, 9, "abcdefghi"), read)
}

func mnistFiles(t *testing.T, pixels, labels []byte) (string, string) {
	return file(t, "images", join(0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 1, pixels)),
		file(t, "labels", zip(t, join(0, 0, 8, 1, 0, 0, 0, len(labels), labels)))
}

func TestReadMNIST(t *testing.T) {
	images, labels := mnistFiles(t, []byte{1, 2, 3, 4}, []byte{9, 0})
	d, err := ReadMNIST(images, labels)
	want := &Images{Channels: 1, Height: 2, Width: 1, Classes: 10, Pixels: []byte{1, 2, 3, 4}, Labels: []byte{9, 0}}
	if err != nil || !reflect.DeepEqual(d, want) {
		t.Fatalf("%+v, %v", d, err)
	}
	if x, err := d.At(1); err != nil || !reflect.DeepEqual(x, Image{[]byte{3, 4}, 0}) {
		t.Errorf("%+v, %v", x, err)
	}
	if _, err := d.At(2); err == nil {
		t.Error("image 2 of 2")
	}
}

func TestReadMNISTErrors(t *testing.T) {
	images, labels := mnistFiles(t, []byte{1, 2, 3, 4}, []byte{9, 0})
	_, three := mnistFiles(t, nil, []byte{1, 2, 3})
	_, wrong := mnistFiles(t, nil, []byte{1, 10})
	floats := file(t, "floats", join(0, 0, 0x0d, 3, make([]byte, 12)))
	for _, c := range []struct{ images, labels, want string }{
		{labels, images, "[]uint8 of shape [2], images are bytes with 3 dimensions"},
		{floats, labels, "[]float32 of shape [0 0 0], images are bytes"},
		{images, images, "labels are bytes with 1 dimensions"},
		{images, three, images + " holds 2 images, " + three + " holds 3 labels"},
		{images, wrong, wrong + ": byte 9: label 10, want 0 to 9"},
	} {
		if _, err := ReadMNIST(c.images, c.labels); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}
