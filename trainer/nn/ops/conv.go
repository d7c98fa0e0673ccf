package ops

import (
	"cmp"
	"fmt"

	gpu "github.com/plx-run/plx/trainer/executor/gpu/kernels"

	"github.com/plx-run/plx/trainer/nn/recurrent"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Conv2D convolves images x (batch, channels, height, width) with filters
// (count, channels, kernel height, kernel width); as in PyTorch, the filters
// are not flipped. The images are padded with pad zeros on every side. The
// result has shape (batch, count, output height, output width). To add a bias,
// use AddBias.
//
// Each image is one matrix product in the BLAS library that Gorgonia uses. The
// result of an image therefore does not depend on the rest of the batch.
func Conv2D(x, filters *gorgonia.Node, stride, pad int) (*gorgonia.Node, error) {
	return Conv(x, filters, Window{Stride: stride, Pad: pad}, Window{Stride: stride, Pad: pad}, 1)
}

// Conv is like Conv2D, but supports different strides and pads in the two
// directions, dilated filters, and groups. With groups, channels and filters
// are divided into that number of groups, and the filters of a group are
// applied only to the channels of that group. The filters then have shape
// (count, channels / groups, kernel height, kernel width). Convolutions that
// use one of these features run only on the CPU.
func Conv(x, filters *gorgonia.Node, down, across Window, groups int) (*gorgonia.Node, error) {
	const what = "convolution"
	dtype, err := floats(what, x, filters)
	if err != nil {
		return nil, err
	}
	xs, fs := x.Shape(), filters.Shape()
	switch {
	case len(xs) != 4 || len(fs) != 4 || groups == 1 && fs[1] != xs[1]:
		return nil, fmt.Errorf("%s: x is %s and the filters are %s, want (batch, channels, height, width) and (count, channels, height, width)",
			what, told(x), told(filters))
	case groups < 1 || xs[1]%groups != 0 || fs[0]%groups != 0 || fs[1] != xs[1]/groups:
		return nil, fmt.Errorf("%s in %d groups: x is %s and the filters are %s, want (batch, channels, height, width) and (count, channels / groups, height, width), where groups divides channels and count",
			what, groups, told(x), told(filters))
	}
	w, err := newWindow(what, x, fs[2], fs[3], down, across)
	if err != nil {
		return nil, err
	}
	c := convolution{window: w, filters: fs[0], groups: groups, dtype: dtype}
	c.what = "convolution " + c.String()
	o := newOp(c.what, dtype, w.out(c.filters), pass(dtype, convolve[float32], convolve[float64], c)).with(c.gradients, 0).makes(RowsOfFirst).on(c.gpu(gpu.Convolve))
	return o.apply(x, filters)
}

// convolution computes a convolution as a matrix product. One matrix has a row
// for each filter; the other has a column for each patch of the image
// (Chellapilla et al., "High performance convolutional neural networks for
// document processing", 2006).
type convolution struct {
	window
	filters int
	groups  int
	what    string
	dtype   tensor.Dtype
}

// String returns the convolution's parameters, so that the names of different
// convolutions differ.
func (c convolution) String() string {
	text := c.window.String()
	if c.across != c.down {
		text += fmt.Sprintf(", across stride %d pad %d", c.across.Stride, c.across.Pad)
	}
	if c.down.Dilation > 1 || c.across.Dilation > 1 {
		text += fmt.Sprintf(" dilation %dx%d", c.down.Dilation, c.across.Dilation)
	}
	if c.groups > 1 {
		text += fmt.Sprintf(" groups %d", c.groups)
	}
	return text
}

func (c convolution) gradients(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	b := &adder{what: c.what, dtype: c.dtype}
	return gorgonia.Nodes{
		b.addOn(c.gpu(gpu.ConvolveImageGradient), "x", pass(c.dtype, imageGradient[float32], imageGradient[float64], c), in[0].Shape(), in[1], dy),
		b.addOn(c.gpu(gpu.ConvolveFilterGradient), "the filters", pass(c.dtype, filterGradient[float32], filterGradient[float64], c), in[1].Shape(), in[0], dy),
	}, b.err
}

// gpu returns how GPUs compute the convolution. It returns nil if the GPU
// kernels do not support the convolution's parameters.
func (c convolution) gpu(part func(gpu.Type, gpu.Window, int) (gpu.Operation, error)) *operation.GPU {
	if c.down != c.across || c.down.Dilation > 1 || c.groups > 1 {
		return nil
	}
	return by(func(t gpu.Type) (gpu.Operation, error) { return part(t, c.window.gpu(), c.filters) })
}

// patch is the number of image elements that the kernel covers, in all
// channels.
func (c convolution) patch() int { return c.channels * c.kernelHeight * c.kernelWidth }

// direct reports whether the matrix of patches equals the image, because the
// kernel is 1 x 1 with stride 1 and no pad.
func (c convolution) direct() bool {
	return c.patch() == c.channels && c.down.Stride*c.across.Stride == 1 && c.down.Pad+c.across.Pad == 0
}

// scratch returns memory for the patches of one image; nil if the convolution
// is direct. fillPatches requires that the memory is initially zero.
func scratch[T float](c convolution) []T {
	if c.direct() {
		return nil
	}
	return make([]T, c.patch()*c.places())
}

func convolve[T float](c convolution) recurrent.Pass[T] {
	patches := scratch[T](c)
	p := product{m: c.filters / c.groups, n: c.places(), k: c.patch() / c.groups}
	return func(out []T, in [][]T) {
		for i := range c.batch {
			columns := patchesOf(c, row(in[0], i, c.image()), patches)
			y := row(out, i, c.filters*c.places())
			for g := range c.groups {
				gemm(p, row(in[1], g, p.m*p.k), row(columns, g, p.k*p.n), 0, row(y, g, p.m*p.n))
			}
		}
	}
}

func imageGradient[T float](c convolution) recurrent.Pass[T] {
	patches := scratch[T](c)
	p := product{m: c.patch() / c.groups, n: c.places(), k: c.filters / c.groups, left: true}
	return func(out []T, in [][]T) {
		for i := range c.batch {
			dx, dy := row(out, i, c.image()), row(in[1], i, c.filters*c.places())
			to := patches
			if c.direct() {
				to = dx
			}
			for g := range c.groups {
				gemm(p, row(in[0], g, p.k*p.m), row(dy, g, p.k*p.n), 0, row(to, g, p.m*p.n))
			}
			if !c.direct() {
				addPatches(c.window, dx, patches)
			}
		}
	}
}

// filterGradient computes the gradient of the filters. It adds up the
// gradients that the images contribute, in the order of the batch.
func filterGradient[T float](c convolution) recurrent.Pass[T] {
	patches := scratch[T](c)
	p := product{m: c.filters / c.groups, n: c.patch() / c.groups, k: c.places(), right: true}
	return func(out []T, in [][]T) {
		beta := T(0)
		for i := range c.batch {
			columns := patchesOf(c, row(in[0], i, c.image()), patches)
			dy := row(in[1], i, c.filters*c.places())
			for g := range c.groups {
				gemm(p, row(dy, g, p.m*p.k), row(columns, g, p.n*p.k), beta, row(out, g, p.m*p.n))
			}
			beta = 1
		}
	}
}

// patchesOf writes the patches of an image into scratch and returns scratch.
// If the convolution is direct (the matrix of patches equals the image), it
// returns the image instead.
func patchesOf[T float](c convolution, image, scratch []T) []T {
	if c.direct() {
		return image
	}
	fillPatches(c.window, scratch, image)
	return scratch
}

// fillPatches writes the matrix of an image's patches. Column p holds the
// elements that the kernel covers at position p. Row (channel, down, across)
// holds what this kernel element covers at all positions. fillPatches does not
// write matrix elements that belong to the padding: they stay zero from the
// allocation of the matrix.
func fillPatches[T float](w window, to, image []T) { overPatches(w, to, image, false) }

// addPatches is the adjoint of fillPatches: it sets each image element to the
// sum of the matrix elements that fillPatches would copy it to.
func addPatches[T float](w window, image, from []T) {
	clear(image)
	overPatches(w, from, image, true)
}

// overPatches copies the image into the matrix of patches, or adds the matrix
// to the image if add is set.
func overPatches[T float](w window, matrix, image []T, add bool) {
	for ; len(image) > 0; image = image[w.plane():] {
		for down := range w.kernelHeight {
			top, bottom := w.down.within(down, w.outHeight, w.height)
			for across := range w.kernelWidth {
				left, right := w.across.within(across, w.outWidth, w.width)
				for i := top; i < bottom && left < right; i++ {
					line := matrix[i*w.outWidth+left : i*w.outWidth+right]
					if covered := image[w.offset(down, across, i, left):]; add {
						addLine(w.across.Stride, covered, line)
					} else {
						copyLine(w.across.Stride, line, covered)
					}
				}
				matrix = matrix[w.places():]
			}
		}
	}
}

// offset returns the index, within a channel, of the image element that kernel
// element (down, across) covers at position (i, j). The caller ensures that
// this element is not in the padding.
func (w window) offset(down, across, i, j int) int {
	return (w.down.at(i)+down*w.down.Dilation)*w.width + w.across.at(j) + across*w.across.Dilation
}

func copyLine[T float](stride int, to, from []T) {
	if stride == 1 {
		copy(to, from)
		return
	}
	for i := range to {
		to[i] = from[i*stride]
	}
}

func addLine[T float](stride int, to, from []T) {
	if stride == 1 {
		to = to[:len(from)]
		for i, v := range from {
			to[i] += v
		}
		return
	}
	for i, v := range from {
		to[i*stride] += v
	}
}

// Window describes how a kernel moves along one axis of an image.
type Window struct {
	Stride   int
	Pad      int // number of zeros added before and after the image
	Dilation int // distance between neighboring kernel elements, in image elements; 0 means 1
}

// at returns the index of the first image element that the kernel covers at a
// position. The index is negative if that element is in the padding.
func (s Window) at(place int) int { return place*s.Stride - s.Pad }

// inside returns the range [from, to) of image elements that the kernel covers
// at a position along this axis. size is the length of the axis. The kernel
// must not be dilated.
func (s Window) inside(place, kernel, size int) (from, to int) {
	return max(s.at(place), 0), min(s.at(place)+kernel, size)
}

// within returns the range [from, to) of positions at which kernel element k
// covers the image and not the padding. places is the number of positions
// along the axis, and size is its length. The range is empty if from >= to.
func (s Window) within(k, places, size int) (from, to int) {
	k *= s.Dilation
	if first := s.Pad - k; first > 0 {
		from = (first + s.Stride - 1) / s.Stride
	}
	if last := size - 1 + s.Pad - k; last >= 0 {
		to = min(last/s.Stride+1, places)
	}
	return from, to
}

// span is the number of image elements from the first to the last element of
// the kernel, including the gaps of a dilated kernel.
func (s Window) span(kernel int) int { return (kernel-1)*s.Dilation + 1 }

// window describes how a kernel moves over images (batch, channels, height,
// width): it begins at the top left corner of the padded image and advances by
// the strides while it fits.
type window struct {
	batch, channels, height, width int // shape of the images
	kernelHeight, kernelWidth      int
	down, across                   Window
	outHeight, outWidth            int // number of kernel positions in each direction, the size of the result
}

// gpu converts the window for the GPU kernels. Its steps down and across must
// be equal.
func (w window) gpu() gpu.Window {
	return gpu.Window{Batch: w.batch, Channels: w.channels, Height: w.height, Width: w.width,
		KernelHeight: w.kernelHeight, KernelWidth: w.kernelWidth, Stride: w.down.Stride, Pad: w.down.Pad}
}

// newWindow checks the parameters of a window over the images x and returns
// the window. Its errors begin with what.
func newWindow(what string, x *gorgonia.Node, kernelHeight, kernelWidth int, down, across Window) (window, error) {
	s := x.Shape()
	if len(s) != 4 {
		return window{}, fmt.Errorf("%s: x is %s, want (batch, channels, height, width)", what, told(x))
	}
	w := window{
		batch: s[0], channels: s[1], height: s[2], width: s[3],
		kernelHeight: kernelHeight, kernelWidth: kernelWidth, down: down, across: across,
	}
	for _, along := range []*Window{&w.down, &w.across} {
		along.Dilation = cmp.Or(along.Dilation, 1)
		if kernelHeight < 1 || kernelWidth < 1 || along.Stride < 1 || along.Pad < 0 {
			return w, fmt.Errorf("%s: kernel %d x %d, stride %d, pad %d: want at least 1, 1 and 0", what, kernelHeight, kernelWidth, along.Stride, along.Pad)
		}
		if along.Dilation < 1 {
			return w, fmt.Errorf("%s: dilation %d: want at least 1", what, along.Dilation)
		}
	}
	high, wide := w.down.span(kernelHeight), w.across.span(kernelWidth)
	if high-w.height > 2*w.down.Pad || wide-w.width > 2*w.across.Pad {
		pad := w.down.Pad
		if high-w.height <= 2*pad {
			pad = w.across.Pad
		}
		return w, fmt.Errorf("%s: x is %s, which with a pad of %d is smaller than the kernel, %d x %d",
			what, told(x), pad, high, wide)
	}
	w.outHeight = (w.height+2*w.down.Pad-high)/w.down.Stride + 1
	w.outWidth = (w.width+2*w.across.Pad-wide)/w.across.Stride + 1
	return w, nil
}

// String returns the window's parameters, except the horizontal steps.
// Convolution and pool append the horizontal steps if they differ from the
// vertical ones.
func (w window) String() string {
	return fmt.Sprintf("%dx%d stride %d pad %d", w.kernelHeight, w.kernelWidth, w.down.Stride, w.down.Pad)
}

// image and plane are the numbers of elements in one image and in one of its
// channels. places is the number of elements in one channel of the result.
func (w window) image() int  { return w.channels * w.plane() }
func (w window) plane() int  { return w.height * w.width }
func (w window) places() int { return w.outHeight * w.outWidth }

// out is the shape of the result for the given number of output channels.
func (w window) out(channels int) tensor.Shape {
	return tensor.Shape{w.batch, channels, w.outHeight, w.outWidth}
}
