package ops

import (
	"fmt"

	gpu "github.com/plx-run/plx/trainer/executor/gpu/kernels"

	"github.com/plx-run/plx/trainer/nn/recurrent"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Conv2D correlates x (batch, channels, height, width) with filters (count,
// channels, kernel height, kernel width). Each filter moves over each image in
// strides, with pad zeros on every side. The result has shape (batch, count,
// places down, places across). AddBias adds a bias to it.
//
// Each image is one matrix product in the BLAS library that Gorgonia uses. So
// the result of an image does not depend on the rest of the batch.
func Conv2D(x, filters *gorgonia.Node, stride, pad int) (*gorgonia.Node, error) {
	const what = "convolution"
	dtype, err := floats(what, x, filters)
	if err != nil {
		return nil, err
	}
	xs, fs := x.Shape(), filters.Shape()
	if len(xs) != 4 || len(fs) != 4 || fs[1] != xs[1] {
		return nil, fmt.Errorf("%s: x is %s and the filters are %s, want (batch, channels, height, width) and (count, channels, height, width)",
			what, told(x), told(filters))
	}
	w, err := newWindow(what, x, fs[2], fs[3], stride, pad)
	if err != nil {
		return nil, err
	}
	c := convolution{window: w, filters: fs[0], what: fmt.Sprintf("convolution %v", w), dtype: dtype}
	o := newOp(c.what, dtype, w.out(c.filters), pass(dtype, convolve[float32], convolve[float64], c)).with(c.gradients, 0).makes(RowsOfFirst).on(c.gpu(gpu.Convolve))
	return o.apply(x, filters)
}

// convolution is the product of the matrix of filters, one row per filter, and
// the matrix of an image's patches (Chellapilla et al., "High performance
// convolutional neural networks for document processing", 2006).
type convolution struct {
	window
	filters int
	what    string
	dtype   tensor.Dtype
}

func (c convolution) gradients(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	b := &adder{what: c.what, dtype: c.dtype}
	return gorgonia.Nodes{
		b.addOn(c.gpu(gpu.ConvolveImageGradient), "x", pass(c.dtype, imageGradient[float32], imageGradient[float64], c), in[0].Shape(), in[1], dy),
		b.addOn(c.gpu(gpu.ConvolveFilterGradient), "the filters", pass(c.dtype, filterGradient[float32], filterGradient[float64], c), in[1].Shape(), in[0], dy),
	}, b.err
}

func (c convolution) gpu(part func(gpu.Type, gpu.Window, int) (gpu.Operation, error)) *operation.GPU {
	return by(func(t gpu.Type) (gpu.Operation, error) { return part(t, c.window.gpu(), c.filters) })
}

// patch is the number of elements under the kernel, in all channels.
func (c convolution) patch() int { return c.channels * c.kernelHeight * c.kernelWidth }

// direct reports whether the matrix of patches is the image itself.
func (c convolution) direct() bool {
	return c.kernelHeight == 1 && c.kernelWidth == 1 && c.stride == 1 && c.pad == 0
}

// scratch returns memory for the patches of one image; see fillPatches.
func scratch[T float](c convolution) []T {
	if c.direct() {
		return nil
	}
	return make([]T, c.patch()*c.places())
}

func convolve[T float](c convolution) recurrent.Pass[T] {
	patches := scratch[T](c)
	p := product{m: c.filters, n: c.places(), k: c.patch()}
	return func(out []T, in [][]T) {
		for i := range c.batch {
			columns := patchesOf(c, row(in[0], i, c.image()), patches)
			gemm(p, in[1], columns, 0, row(out, i, c.filters*c.places()))
		}
	}
}

func imageGradient[T float](c convolution) recurrent.Pass[T] {
	patches := scratch[T](c)
	p := product{m: c.patch(), n: c.places(), k: c.filters, left: true}
	return func(out []T, in [][]T) {
		for i := range c.batch {
			dx, dy := row(out, i, c.image()), row(in[1], i, c.filters*c.places())
			if c.direct() {
				gemm(p, in[0], dy, 0, dx)
				continue
			}
			gemm(p, in[0], dy, 0, patches)
			addPatches(c.window, dx, patches)
		}
	}
}

// filterGradient adds the images one after the other.
func filterGradient[T float](c convolution) recurrent.Pass[T] {
	patches := scratch[T](c)
	p := product{m: c.filters, n: c.patch(), k: c.places(), right: true}
	return func(out []T, in [][]T) {
		beta := T(0)
		for i := range c.batch {
			columns := patchesOf(c, row(in[0], i, c.image()), patches)
			gemm(p, row(in[1], i, c.filters*c.places()), columns, beta, out)
			beta = 1
		}
	}
}

// patchesOf writes the patches of an image into scratch. If the image is its
// own matrix of patches, it returns the image.
func patchesOf[T float](c convolution, image, scratch []T) []T {
	if c.direct() {
		return image
	}
	fillPatches(c.window, scratch, image)
	return scratch
}

// fillPatches writes the matrix of an image's patches. Column p holds what the
// kernel covers at place p; row (channel, down, across) holds what that element
// of the kernel covers at all places. It does not write elements that lie on
// the pad: they are zero for all images, from the time the matrix was
// allocated.
func fillPatches[T float](w window, to, image []T) { overPatches(w, to, image, false) }

// addPatches reverses fillPatches: each element of the image becomes the sum of
// the matrix's elements that cover it, in the order of the matrix.
func addPatches[T float](w window, image, from []T) {
	clear(image)
	overPatches(w, from, image, true)
}

// overPatches copies the image to the matrix, or adds the matrix to the image.
func overPatches[T float](w window, matrix, image []T, add bool) {
	for ; len(image) > 0; image = image[w.plane():] {
		for down := range w.kernelHeight {
			top, bottom := w.within(down, w.outHeight, w.height)
			for across := range w.kernelWidth {
				left, right := w.within(across, w.outWidth, w.width)
				for i := top; i < bottom && left < right; i++ {
					line := matrix[i*w.outWidth+left : i*w.outWidth+right]
					if covered := image[w.offset(down, across, i, left):]; add {
						addLine(w, covered, line)
					} else {
						copyLine(w, line, covered)
					}
				}
				matrix = matrix[w.places():]
			}
		}
	}
}

// offset is the place in a channel that element (down, across) of the kernel
// covers at place (i, j). The caller knows that it is not on the pad.
func (w window) offset(down, across, i, j int) int {
	return (i*w.stride-w.pad+down)*w.width + j*w.stride - w.pad + across
}

func copyLine[T float](w window, to, from []T) {
	if w.stride == 1 {
		copy(to, from)
		return
	}
	for i := range to {
		to[i] = from[i*w.stride]
	}
}

func addLine[T float](w window, to, from []T) {
	if w.stride == 1 {
		to = to[:len(from)]
		for i, v := range from {
			to[i] += v
		}
		return
	}
	for i, v := range from {
		to[i*w.stride] += v
	}
}

// window says how a kernel moves over images (batch, channels, height, width):
// from the top left corner of the padded image, in strides, as long as it fits.
type window struct {
	batch, channels, height, width int // of the images
	kernelHeight, kernelWidth      int
	stride, pad                    int // in both directions; pad on all four sides
	outHeight, outWidth            int // number of places
}

func (w window) gpu() gpu.Window {
	return gpu.Window{Batch: w.batch, Channels: w.channels, Height: w.height, Width: w.width,
		KernelHeight: w.kernelHeight, KernelWidth: w.kernelWidth, Stride: w.stride, Pad: w.pad}
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
