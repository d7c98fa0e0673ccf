package data

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/random"
)

// Picture is an image that says how large it is: one of a dataset whose images have
// several sizes.
type Picture struct {
	Image
	Height, Width int
}

// DecodePicture decodes a PNG or JPEG image of any size into three channels: red, green
// and blue. What is transparent becomes black.
func DecodePicture(encoded []byte) (Picture, error) { return decodePicture(encoded, "", 0, 0) }

// plane is the number of pixels of a channel.
func (p Picture) plane() int { return p.Height * p.Width }

// Crop makes images of one size of pictures: it resizes a picture so that its shorter
// side is Resize, puts Pad black pixels on each side, and takes a square of Size out.
type Crop struct {
	Resize int // pixels of the shorter side; 0: a picture keeps its size
	Pad    int
	Size   int // pixels of a side of the square
}

// Center takes the square in the middle, as evaluations do.
func (c Crop) Center(p Picture) (Image, error) {
	p, err := c.prepare(p)
	if err != nil {
		return Image{}, err
	}
	return p.crop((p.Height-c.Size)/2, (p.Width-c.Size)/2, c.Size, false), nil
}

// Random takes any square with the same probability, and mirrors one half of them:
// right becomes left. Both follow from s alone, see [Augment].
func (c Crop) Random(p Picture, s random.Stream) (Image, error) {
	p, err := c.prepare(p)
	if err != nil {
		return Image{}, err
	}
	drawn := s.Bits(0)
	below := func(n int, word uint32) int { return int(uint64(n) * uint64(word) >> 32) }
	return p.crop(below(p.Height-c.Size+1, drawn[0]), below(p.Width-c.Size+1, drawn[1]), c.Size, drawn[2]&1 == 1), nil
}

// prepare resizes and pads.
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

// pad puts n black pixels on each side.
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

// crop takes a square of size pixels from (top, left) on.
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
