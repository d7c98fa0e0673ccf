package data

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
)

func cifar(labels ...int) []byte {
	var b []byte
	for i, label := range labels {
		b = append(b, byte(label))
		for p := range cifarPixels {
			b = append(b, byte(p*7+i))
		}
	}
	return b
}

func TestReadCIFAR10(t *testing.T) {
	d, err := ReadCIFAR10(file(t, "1", cifar(3, 9)), file(t, "2", zip(t, cifar(0))))
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(cifar(3, 9)[1:cifarRecord], cifar(3, 9)[cifarRecord+1:], cifar(0)[1:])
	if !slices.Equal(d.Labels, []byte{3, 9, 0}) || !bytes.Equal(d.Pixels, want) || d.Len() != 3 || d.Channels*d.Height*d.Width != cifarPixels {
		t.Errorf("labels %v, %d pixels, %d x %d x %d", d.Labels, len(d.Pixels), d.Channels, d.Height, d.Width)
	}
}

func TestReadCIFAR10Errors(t *testing.T) {
	read := func(path string) error { _, err := ReadCIFAR10(path); return err }
	checkFaults(t, []faulty{
		{"empty", nil, ": byte 0: the file is empty, want CIFAR-10 records of 3073 bytes", ""},
		{"cut", cifar(1, 2)[:4000], ": byte 3073: record 1 of CIFAR-10: truncated: want 3073 bytes, the file has 927", ""},
		{"label", cifar(1, 10), ": byte 3073: record 1: label 10, want 0 to 9", "CIFAR-100"},
		{"pickle", join("\x80\x03}q", make([]byte, 4000)), ": byte 0: record 0: label 128, want 0 to 9", "Python"},
	}, read)
	checkBrokenPacking(t, make([]byte, cifarRecord), read)
	if _, err := ReadCIFAR10(); err == nil {
		t.Error("no files, no error")
	}
}

// pair is two images of two channels, with one row of two pixels.
var pair = []Image{{[]uint8{0, 255, 51, 102}, 2}, {[]uint8{255, 0, 0, 255}, 0}}

func TestScale(t *testing.T) {
	x, y, err := Scale{}.Batch([]Image{pair[1], pair[0], pair[1]}, 4, 3)
	if err != nil {
		t.Fatal(err)
	}
	if want := []float32{1, 0, 0, 1, 0, 1, 0.2, 0.4, 1, 0, 0, 1}; !slices.Equal(x, want) {
		t.Errorf("pixels %v, want %v", x, want)
	}
	if want := []float32{1, 0, 0, 0, 0, 1, 1, 0, 0}; !slices.Equal(y, want) {
		t.Errorf("labels %v, want %v", y, want)
	}
	x, _, err = Scale{Mean: []float32{0.5, 0.2}, Std: []float32{0.5, 0.1}}.Batch(pair[:1], 4, 3)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{-1, 1, 0, 2} {
		if math.Abs(float64(x[i])-want) > 1e-6 {
			t.Errorf("pixel %d is %v, want %v", i, x[i], want)
		}
	}
	if x, y, err := (Scale{}).Batch(nil, 4, 3); err != nil || len(x) != 0 || len(y) != 0 {
		t.Errorf("no rows: %v, %v, %v", x, y, err)
	}
}

func TestScaleErrors(t *testing.T) {
	for _, c := range []struct {
		s               Scale
		pixels, classes int
		want            string
	}{
		{Scale{}, 5, 3, "an image has 4 pixels, all channels together, want 5"},
		{Scale{}, 4, 2, "an image has label 2, want 0 to 1"},
		{Scale{}, 0, 3, "images of 0 pixels"},
		{Scale{}, 4, 0, "0 classes"},
		{Scale{Mean: []float32{0, 0, 0}, Std: []float32{1, 1, 1}}, 4, 3, "in 3 channels"},
		{Scale{Mean: []float32{1}}, 4, 3, "1 means and 0 deviations"},
		{Scale{Mean: []float32{0}, Std: []float32{0}}, 4, 3, "want more than 0"},
		{Scale{Mean: []float32{0}, Std: []float32{float32(math.NaN())}}, 4, 3, "want more than 0"},
	} {
		if _, _, err := c.s.Batch(pair, c.pixels, c.classes); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}
