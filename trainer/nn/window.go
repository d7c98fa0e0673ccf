package nn

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// window says how a kernel moves over images (batch, channels, height, width):
// from the top left corner of the padded image, in strides, as long as it fits.
type window struct {
	batch, channels, height, width int // of the images
	kernelHeight, kernelWidth      int
	stride, pad                    int // in both directions; pad on all four sides
	outHeight, outWidth            int // number of places
}

// newWindow checks the sizes. Errors begin with what.
func newWindow(what string, x *gorgonia.Node, kernelHeight, kernelWidth, stride, pad int) (window, error) {
	s := x.Shape()
	if len(s) != 4 {
		return window{}, fmt.Errorf("%s: x is %s, want (batch, channels, height, width)", what, told(x))
	}
	w := window{
		batch: s[0], channels: s[1], height: s[2], width: s[3],
		kernelHeight: kernelHeight, kernelWidth: kernelWidth, stride: stride, pad: pad,
	}
	if kernelHeight < 1 || kernelWidth < 1 || stride < 1 || pad < 0 {
		return w, fmt.Errorf("%s: kernel %d x %d, stride %d, pad %d: want at least 1, 1 and 0", what, kernelHeight, kernelWidth, stride, pad)
	}
	if kernelHeight-w.height > 2*pad || kernelWidth-w.width > 2*pad {
		return w, fmt.Errorf("%s: x is %s, which with a pad of %d is smaller than the kernel, %d x %d",
			what, told(x), pad, kernelHeight, kernelWidth)
	}
	w.outHeight = (w.height+2*pad-kernelHeight)/stride + 1
	w.outWidth = (w.width+2*pad-kernelWidth)/stride + 1
	return w, nil
}

func (w window) String() string {
	return fmt.Sprintf("%dx%d stride %d pad %d", w.kernelHeight, w.kernelWidth, w.stride, w.pad)
}

// image and plane are the numbers of elements of an image and of one of its
// channels; places is the number of elements of a channel of the result.
func (w window) image() int  { return w.channels * w.plane() }
func (w window) plane() int  { return w.height * w.width }
func (w window) places() int { return w.outHeight * w.outWidth }

// out is the shape of the result for a number of channels.
func (w window) out(channels int) tensor.Shape {
	return tensor.Shape{w.batch, channels, w.outHeight, w.outWidth}
}

// inside returns the elements [from, to) of an image's axis that the kernel
// covers at a place. The axis has size elements.
func (w window) inside(place, kernel, size int) (from, to int) {
	at := place*w.stride - w.pad
	return max(at, 0), min(at+kernel, size)
}

// within returns the places [from, to) at which element k of the kernel lies on
// the image. The axis has a number of places and size elements. There are none
// unless from < to.
func (w window) within(k, places, size int) (from, to int) {
	if first := w.pad - k; first > 0 {
		from = (first + w.stride - 1) / w.stride
	}
	if last := size - 1 + w.pad - k; last >= 0 {
		to = min(last/w.stride+1, places)
	}
	return from, to
}
