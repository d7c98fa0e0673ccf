package data

import (
	"fmt"
	"hash/crc32"
	"slices"
)

// Image is a labeled image. Pixels holds one channel after the other, each of
// them row by row. Label is the index of the image's class.
type Image struct {
	Pixels []uint8
	Label  int
}

// Images is an in-memory dataset of images that all have the same size.
type Images struct {
	Channels, Height, Width int
	Classes                 int
	Pixels                  []uint8 // pixels of all images, one image after the other: Len() x Channels x Height x Width bytes
	Labels                  []uint8 // class of each image, a number less than Classes
}

// Len is the number of images.
func (d *Images) Len() int { return len(d.Labels) }

// At returns image i. Its pixels are a slice of d.Pixels, not a copy.
func (d *Images) At(i int) (Image, error) {
	if err := checkIndex(i, d.Len()); err != nil {
		return Image{}, err
	}
	size := d.Channels * d.Height * d.Width
	return Image{Pixels: d.Pixels[i*size : (i+1)*size : (i+1)*size], Label: int(d.Labels[i])}, nil
}

// Describe returns the number and size of the images, and a checksum of all
// pixels and labels.
func (d *Images) Describe() string {
	return fmt.Sprintf("%d images of %d x %d x %d, checksum %08x", d.Len(), d.Channels, d.Height, d.Width,
		crc32.Update(crc32.Checksum(d.Pixels, castagnoli), castagnoli, d.Labels))
}

// ReadMNIST reads a file of images and a file of their labels in MNIST's
// format: 10 classes of gray images with one channel. Fashion-MNIST and other
// data sets use the same format.
func ReadMNIST(images, labels string) (*Images, error) {
	pixels, err := readBytes(images, 3, "images")
	if err != nil {
		return nil, err
	}
	classes, err := readBytes(labels, 1, "labels")
	if err != nil {
		return nil, err
	}
	if n, m := pixels.shape[0], classes.shape[0]; n != m {
		return nil, fmt.Errorf("%s holds %d images, %s holds %d labels: they do not belong together", images, n, labels, m)
	}
	d := &Images{
		Channels: 1, Height: pixels.shape[1], Width: pixels.shape[2], Classes: 10,
		Pixels: pixels.values.([]uint8), Labels: classes.values.([]uint8),
	}
	for i, label := range d.Labels {
		if int(label) >= d.Classes {
			return nil, &formatError{file: labels, offset: 8 + int64(i), cause: fmt.Errorf("label %d, want 0 to %d", label, d.Classes-1)}
		}
	}
	return d, nil
}

// readBytes reads an IDX file. It returns an error unless the elements are
// bytes and the array has the given number of dimensions.
func readBytes(path string, dimensions int, what string) (*array, error) {
	a, err := readIDX(path)
	if err != nil {
		return nil, err
	}
	if _, bytes := a.values.([]uint8); !bytes || len(a.shape) != dimensions {
		cause := fmt.Errorf("%T of shape %v, %s are bytes with %d dimensions", a.values, a.shape, what, dimensions)
		return nil, hintedError{&formatError{file: path, offset: 2, cause: cause}, "the first file holds the images, the second the labels"}
	}
	return a, nil
}

// A CIFAR-10 record is one byte for the label, followed by three channels of
// 32 rows of 32 pixels.
const (
	cifarSide    = 32
	cifarPixels  = 3 * cifarSide * cifarSide
	cifarRecord  = 1 + cifarPixels
	cifarClasses = 10
)

// ReadCIFAR10 reads files of CIFAR-10's binary version into one dataset, in
// the order of paths. The files may be compressed with gzip.
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
			return hintedError{s.faultAt(s.offset-cifarRecord, "record %d: label %d, want 0 to %d", record, b[0], cifarClasses-1),
				"of CIFAR's versions the binary one of CIFAR-10 is read, not CIFAR-100, Python's or Matlab's"}
		}
		if int64(len(d.Pixels))+cifarPixels > maxBytes {
			return s.fault("record %d: more than the %d bytes of images that are read at most", record, int64(maxBytes))
		}
		d.Labels = append(d.Labels, b[0])
		d.Pixels = append(d.Pixels, b[1:]...)
	}
}

// Scale converts pixels to floating-point numbers. The zero value divides
// pixels by 255, so that the result is in [0, 1]. If Mean and Std are set, the
// result is (pixel/255 - mean)/std. Both need one number for each channel.
type Scale struct{ Mean, Std []float32 }

// tables returns, for each channel, a table that maps a pixel to its scaled
// value. Without Mean and Std, one table serves all channels.
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

// Batch converts images to a batch for training. x holds the scaled pixels, of
// shape (len(images), channels, height, width). y holds the labels, one-hot,
// of shape (len(images), classes). Every image must have exactly pixels
// values, all channels together.
func (s Scale) Batch(images []Image, pixels, classes int) (x, y []float32, err error) {
	tables, err := s.tables()
	if err != nil {
		return nil, nil, err
	}
	if pixels < 1 || pixels%len(tables) != 0 || classes < 1 {
		return nil, nil, fmt.Errorf("a batch of images of %d pixels in %d channels and %d classes", pixels, len(tables), classes)
	}
	x, y = make([]float32, len(images)*pixels), make([]float32, len(images)*classes)
	for row, image := range images {
		if len(image.Pixels) != pixels {
			return nil, nil, fmt.Errorf("an image has %d pixels, all channels together, want %d", len(image.Pixels), pixels)
		}
		if image.Label < 0 || image.Label >= classes {
			return nil, nil, fmt.Errorf("an image has label %d, want 0 to %d", image.Label, classes-1)
		}
		scale(tables, image.Pixels, x[row*pixels:(row+1)*pixels])
		y[row*classes+image.Label] = 1
	}
	return x, y, nil
}

func scale(tables [][256]float32, pixels []uint8, x []float32) {
	channel := len(pixels) / len(tables)
	for c := range tables {
		to := x[c*channel : (c+1)*channel]
		for i, pixel := range pixels[c*channel : (c+1)*channel] {
			to[i] = tables[c][pixel]
		}
	}
}
