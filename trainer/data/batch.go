package data

import "fmt"

// Scale turns pixels into numbers. The zero value divides by 255, into [0, 1].
// With Mean and Std, one number for each channel in units of [0, 1], the result
// is (pixel/255 - mean)/std.
type Scale struct{ Mean, Std []float32 }

// tables holds by channel what each pixel becomes.
func (s Scale) tables() ([][256]float32, error) {
	if len(s.Mean) != len(s.Std) {
		return nil, fmt.Errorf("scale of pixels: %d means and %d deviations, want one of each for a channel", len(s.Mean), len(s.Std))
	}
	tables := make([][256]float32, max(1, len(s.Mean)))
	for c := range tables {
		for pixel := range tables[c] {
			tables[c][pixel] = float32(pixel) / 255
			if len(s.Mean) > 0 {
				tables[c][pixel] = (tables[c][pixel] - s.Mean[c]) / s.Std[c]
			}
		}
		if len(s.Std) > 0 && !(s.Std[c] > 0) {
			return nil, fmt.Errorf("scale of pixels: the deviation of channel %d is %v, want more than 0", c, s.Std[c])
		}
	}
	return tables, nil
}

// Filler fills batches from a dataset of images. Any number of goroutines may
// use it.
type Filler struct {
	images  Dataset[Image]
	tables  [][256]float32
	classes int
}

// NewFiller returns a filler for images of a number of classes.
func NewFiller(images Dataset[Image], classes int, s Scale) (*Filler, error) {
	tables, err := s.tables()
	if err != nil {
		return nil, err
	}
	if classes < 1 {
		return nil, fmt.Errorf("%d classes of images, want at least one", classes)
	}
	return &Filler{images, tables, classes}, nil
}

// Fill writes samples to a batch. Row i is sample indices[i]. It writes the
// scaled pixels to x, of shape (len(indices), channels, height, width), and the
// labels, one-hot, to y, of shape (len(indices), classes).
func (f *Filler) Fill(indices []int, x, y []float32) error {
	if len(y) != len(indices)*f.classes {
		return fmt.Errorf("fill a batch: room for %d labels, want %d rows of %d", len(y), len(indices), f.classes)
	}
	if len(indices) == 0 {
		return nil
	}
	width := len(x) / len(indices)
	clear(y)
	for row, index := range indices {
		image, err := f.images.At(index)
		if err != nil {
			return err
		}
		if len(image.Pixels)*len(indices) != len(x) || width%len(f.tables) != 0 {
			return fmt.Errorf("fill a batch: room for %d numbers, want %d rows of the %d pixels of sample %d, in %d channels",
				len(x), len(indices), len(image.Pixels), index, len(f.tables))
		}
		if image.Label < 0 || image.Label >= f.classes {
			return fmt.Errorf("fill a batch: sample %d: label %d, want 0 to %d", index, image.Label, f.classes-1)
		}
		f.scale(image.Pixels, x[row*width:(row+1)*width])
		y[row*f.classes+image.Label] = 1
	}
	return nil
}

func (f *Filler) scale(pixels []uint8, x []float32) {
	channel := len(pixels) / len(f.tables)
	for c := range f.tables {
		table := &f.tables[c]
		to := x[c*channel : (c+1)*channel]
		for i, pixel := range pixels[c*channel : (c+1)*channel] {
			to[i] = table[pixel]
		}
	}
}
