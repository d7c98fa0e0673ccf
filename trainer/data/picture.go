package data

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/random"
)

// Picture is an image together with its size, for datasets whose images differ
// in size.
type Picture struct {
	Image
	Height, Width int
}

// DecodePicture decodes a PNG or JPEG image of any size into three channels:
// red, green and blue. Transparent pixels become black.
func DecodePicture(encoded []byte) (Picture, error) { return decodePicture(encoded, "", 0, 0) }

// plane is the number of pixels in one channel.
func (p Picture) plane() int { return p.Height * p.Width }

// Crop turns pictures of any size into square images of one size. It resizes a
// picture so that its shorter side has Resize pixels, adds Pad black pixels on
// each side, and cuts out a square of Size x Size pixels.
type Crop struct {
	Resize int // length of the shorter side after resizing, in pixels; 0 means no resizing
	Pad    int
	Size   int // side length of the square, in pixels
}

// Center returns the square in the middle of the picture, which is usual for
// evaluation.
func (c Crop) Center(p Picture) (Image, error) {
	p, err := c.prepare(p)
	if err != nil {
		return Image{}, err
	}
	return p.crop((p.Height-c.Size)/2, (p.Width-c.Size)/2, c.Size, false), nil
}

// Random returns a randomly placed square of the picture and mirrors it left
// to right with probability 1/2. Both choices depend only on s, which
// [Augment] supplies.
func (c Crop) Random(p Picture, s random.Stream) (Image, error) {
	p, err := c.prepare(p)
	if err != nil {
		return Image{}, err
	}
	drawn := s.Bits(0)
	below := func(n int, word uint32) int { return int(uint64(n) * uint64(word) >> 32) }
	return p.crop(below(p.Height-c.Size+1, drawn[0]), below(p.Width-c.Size+1, drawn[1]), c.Size, drawn[2]&1 == 1), nil
}

// prepare checks the fields of c, then resizes and pads the picture.
func (c Crop) prepare(p Picture) (Picture, error) {
	if c.Resize < 0 || c.Pad < 0 || c.Size < 1 {
		return p, fmt.Errorf("crop a picture: %+v, want at least 0, 0 and 1", c)
	}
	if plane := p.plane(); plane < 1 || len(p.Pixels)%plane != 0 {
		return p, fmt.Errorf("crop a picture: %d pixels are no whole number of channels of %d x %d", len(p.Pixels), p.Width, p.Height)
	}
	p, err := p.resize(c.Resize)
	if err != nil {
		return p, err
	}
	if p = p.pad(c.Pad); min(p.Height, p.Width) < c.Size {
		return p, hintedError{fmt.Errorf("crop a picture: it has %d x %d pixels, less than the %d x %d of the crop", p.Width, p.Height, c.Size, c.Size),
			"resize pictures to a shorter side of at least the crop's"}
	}
	return p, nil
}

// pad adds n black pixels on each side of the picture.
func (p Picture) pad(n int) Picture {
	if n == 0 {
		return p
	}
	to := Picture{Height: p.Height + 2*n, Width: p.Width + 2*n}
	to.Label = p.Label
	for channel := range slices.Chunk(p.Pixels, p.plane()) {
		padded := make([]uint8, to.plane())
		for i, line := range slices.Collect(slices.Chunk(channel, p.Width)) {
			copy(padded[(i+n)*to.Width+n:], line)
		}
		to.Pixels = append(to.Pixels, padded...)
	}
	return to
}

// crop returns the square of size x size pixels whose top left corner is at
// (top, left), mirrored left to right if mirrored is set.
func (p Picture) crop(top, left, size int, mirrored bool) Image {
	to := make([]uint8, 0, len(p.Pixels)/p.plane()*size*size)
	for channel := range slices.Chunk(p.Pixels, p.plane()) {
		for row := top; row < top+size; row++ {
			to = append(to, channel[row*p.Width+left:row*p.Width+left+size]...)
			if mirrored {
				slices.Reverse(to[len(to)-size:])
			}
		}
	}
	return Image{Pixels: to, Label: p.Label}
}
