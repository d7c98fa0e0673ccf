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

func TestFaultyCIFAR10(t *testing.T) {
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

func filler(t *testing.T, s Scale) *Filler {
	t.Helper()
	d := &Images{Channels: 2, Height: 1, Width: 2, Classes: 3, Pixels: []uint8{0, 255, 51, 102, 255, 0, 0, 255}, Labels: []uint8{2, 0}}
	f, err := NewFiller(d, d.Classes, s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFill(t *testing.T) {
	x, y := make([]float32, 12), []float32{5, 5, 5, 5, 5, 5, 5, 5, 5}
	if err := filler(t, Scale{}).Fill([]int{1, 0, 1}, x, y); err != nil {
		t.Fatal(err)
	}
	if want := []float32{1, 0, 0, 1, 0, 1, 0.2, 0.4, 1, 0, 0, 1}; !slices.Equal(x, want) {
		t.Errorf("pixels %v, want %v", x, want)
	}
	if want := []float32{1, 0, 0, 0, 0, 1, 1, 0, 0}; !slices.Equal(y, want) {
		t.Errorf("labels %v, want %v", y, want)
	}
	scale := Scale{Mean: []float32{0.5, 0.2}, Std: []float32{0.5, 0.1}}
	if err := filler(t, scale).Fill([]int{0}, x[:4], y[:3]); err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{-1, 1, 0, 2} {
		if math.Abs(float64(x[i])-want) > 1e-6 {
			t.Errorf("pixel %d is %v, want %v", i, x[i], want)
		}
	}
	if err := filler(t, Scale{}).Fill(nil, nil, nil); err != nil {
		t.Errorf("no rows: %v", err)
	}
	f := filler(t, Scale{})
	if n := testing.AllocsPerRun(10, func() { _ = f.Fill([]int{0, 1}, x[:8], y[:6]) }); n > 0 {
		t.Errorf("%v allocations for a batch", n)
	}
}

func TestFillIsRefused(t *testing.T) {
	x, y := make([]float32, 12), make([]float32, 9)
	three := Scale{Mean: []float32{0, 0, 0}, Std: []float32{1, 1, 1}}
	for _, c := range []struct {
		f       *Filler
		indices []int
		x, y    []float32
		want    string
	}{
		{filler(t, Scale{}), []int{0}, x[:4], y[:2], "room for 2 labels, want 1 rows of 3"},
		{filler(t, Scale{}), []int{0}, x[:5], y[:3], "room for 5 numbers, want 1 rows of the 4 pixels"},
		{filler(t, Scale{}), []int{0, 1}, x[:9], y[:6], "room for 9 numbers"},
		{filler(t, Scale{}), []int{2}, x[:4], y[:3], "sample 2 of a dataset of 2"},
		{filler(t, three), []int{0}, x[:4], y[:3], "in 3 channels"},
		{&Filler{filler(t, Scale{}).images, make([][256]float32, 1), 2}, []int{0}, x[:4], y[:2], "sample 0: label 2, want 0 to 1"},
	} {
		if err := c.f.Fill(c.indices, c.x, c.y); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	for _, s := range []Scale{{Mean: []float32{1}}, {Mean: []float32{0}, Std: []float32{0}}, {Mean: []float32{0}, Std: []float32{float32(math.NaN())}}} {
		if _, err := NewFiller(&Images{}, 1, s); err == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
	if _, err := NewFiller(&Images{}, 0, Scale{}); err == nil {
		t.Error("no classes are accepted")
	}
}
