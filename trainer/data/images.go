package data

import (
	"fmt"
	"slices"
)

// Image is a sample: its pixels, channel by channel and row by row, and its
// class.
type Image struct {
	Pixels []uint8
	Label  int
}

// Images is a dataset of images of one size, all in memory.
type Images struct {
	Channels, Height, Width int
	Classes                 int
	Pixels                  []uint8 // Len() x Channels x Height x Width
	Labels                  []uint8 // each below Classes
}

// Len is the number of images.
func (d *Images) Len() int { return len(d.Labels) }

// At returns image i. Its pixels are the dataset's own memory.
func (d *Images) At(i int) (Image, error) {
	if err := checkIndex(i, d.Len()); err != nil {
		return Image{}, err
	}
	size := d.Channels * d.Height * d.Width
	return Image{Pixels: d.Pixels[i*size : (i+1)*size : (i+1)*size], Label: int(d.Labels[i])}, nil
}

// A record of CIFAR-10 is one byte for the label and three channels of 32 rows
// of 32 pixels.
const (
	cifarSide    = 32
	cifarPixels  = 3 * cifarSide * cifarSide
	cifarRecord  = 1 + cifarPixels
	cifarClasses = 10
)

// ReadCIFAR10 reads files of CIFAR-10's binary version, packed with gzip or
// not, one after the other into one dataset.
func ReadCIFAR10(paths ...string) (*Images, error) {
	if len(paths) == 0 {
		return nil, fmt.Errorf("read CIFAR-10: no files named")
	}
	d := &Images{Channels: 3, Height: cifarSide, Width: cifarSide, Classes: cifarClasses}
	for _, path := range paths {
		if _, err := readFile(path, func(s *source) (struct{}, error) { return struct{}{}, d.appendCIFAR(s) }); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *Images) appendCIFAR(s *source) error {
	d.Pixels = slices.Grow(d.Pixels, int(max(0, s.size)/cifarRecord*cifarPixels))
	for record := 0; ; record++ {
		more, err := s.more()
		if err != nil {
			return err
		}
		if !more && record == 0 {
			return s.fault("the file is empty, want CIFAR-10 records of %d bytes", cifarRecord)
		}
		if !more {
			return nil
		}
		b, err := s.take(cifarRecord, fmt.Sprintf("record %d of CIFAR-10", record))
		if err != nil {
			return err
		}
		if b[0] >= cifarClasses {
			s.back(cifarRecord)
			return s.hinted("of CIFAR's versions the binary one of CIFAR-10 is read, not CIFAR-100, Python's or Matlab's",
				"record %d: label %d, want 0 to %d", record, b[0], cifarClasses-1)
		}
		if int64(len(d.Pixels))+cifarPixels > maxBytes {
			return s.fault("record %d: more than the %d bytes of images that are read at most", record, int64(maxBytes))
		}
		d.Labels = append(d.Labels, b[0])
		d.Pixels = append(d.Pixels, b[1:]...)
	}
}
