package kernels

import "fmt"

// Window describes how a kernel of a convolution or a pool moves over images
// of shape (batch, channels, height, width). The kernel starts at the top left
// corner of the padded image and moves by Stride, as long as it fits into the
// padded image.
type Window struct {
	Batch, Channels, Height, Width int // shape of the images
	KernelHeight, KernelWidth      int
	Stride, Pad                    int // Stride: step of the kernel in both directions; Pad: number of zeros added on each of the four sides
}

// places returns the number of vertical and of horizontal positions of the
// kernel, which is the height and width of the result.
func (w Window) places() (height, width int) {
	return (w.Height+2*w.Pad-w.KernelHeight)/w.Stride + 1, (w.Width+2*w.Pad-w.KernelWidth)/w.Stride + 1
}

func (w Window) parameters() []any {
	height, width := w.places()
	return []any{w.Channels, w.Height, w.Width, w.KernelHeight, w.KernelWidth, w.Stride, w.Pad, height, width}
}

// check returns an error for a window that the kernels do not support. count
// is the number of channels of the result.
func (w Window) check(what string, count int) error {
	if w.Stride < 1 || w.Pad < 0 || w.KernelHeight < 1 || w.KernelWidth < 1 ||
		w.KernelHeight > w.Height+2*w.Pad || w.KernelWidth > w.Width+2*w.Pad || w.Batch > mostBlockY {
		return fmt.Errorf("%s on a GPU: there is no kernel for %+v", what, w)
	}
	height, width := w.places()
	return check(what, elements(w.Batch, w.Channels, w.Height+2*w.Pad, w.Width+2*w.Pad), elements(w.Batch, count, height, width),
		elements(count, w.Channels, w.KernelHeight, w.KernelWidth))
}

// Convolve computes nn.Conv2D. The operands are out, x and filters. Each
// element is a sum over channel, row and column of the filter, in this order.
// Each multiplication is fused with its addition.
func Convolve(t Type, w Window, filters int) (Operation, error) {
	o := Operation{Operands: []string{"out", "x", "filters"}}
	if err := w.check("convolution", filters); err != nil {
		return o, err
	}
	height, width := w.places()
	return o.then(launch("convolution", "convolve_"+t.suffix(), tiles(filters, height*width, w.Batch), blockThreads, all(3),
		append([]any{filters}, w.parameters()...)...)), nil
}

// ConvolveImageGradient computes the gradient of Convolve's operand x. The
// operands are dx, filters and dy. Each element is a sum over row of the
// filter, column of the filter and number of the filter, in this order.
func ConvolveImageGradient(t Type, w Window, filters int) (Operation, error) {
	o := Operation{Operands: []string{"dx", "filters", "dy"}}
	if err := w.check("convolution", filters); err != nil {
		return o, err
	}
	return o.then(launch("convolution", "image_gradient_"+t.suffix(), tiles(w.Channels, w.Height*w.Width, w.Batch), blockThreads, all(3),
		append([]any{filters}, w.parameters()...)...)), nil
}

// ConvolveFilterGradient computes the gradient of Convolve's filters. The
// operands are dw, x and dy. Each element is a sum over the images and, in
// each image, over the positions of the filter. The sum is divided into at
// most 32 parts of whole images, which are added in their order.
func ConvolveFilterGradient(t Type, w Window, filters int) (Operation, error) {
	o := Operation{Operands: []string{"dw", "x", "dy"}}
	if err := w.check("convolution", filters); err != nil {
		return o, err
	}
	patch := w.Channels * w.KernelHeight * w.KernelWidth
	images := divide(w.Batch, min(max(w.Batch, 1), mostParts))
	parts := divide(w.Batch, max(images, 1))
	to, n := 0, filters*patch
	if parts > 1 {
		to, o.Scratch = 3, parts*n*t.Size()
	}
	o = o.then(launch("convolution", "filter_gradient_"+t.suffix(), tiles(filters, patch, parts), blockThreads, []int{to, 1, 2},
		append([]any{filters, w.Batch, images}, w.parameters()...)...))
	if parts > 1 {
		o = o.then(launch("product", "parts_"+t.suffix(), grid(n), blockThreads, []int{0, 3, 0}, n, n, 1, parts, 0))
	}
	return o, nil
}

// MaxPool computes nn.MaxPool2D. The operands are out and x.
func MaxPool(t Type, w Window) (Operation, error) {
	height, width := w.places()
	return w.pool(t, "max_pool_", []string{"out", "x"}, height*width)
}

// AvgPool computes nn.AvgPool2D. The operands are out and x.
func AvgPool(t Type, w Window) (Operation, error) {
	height, width := w.places()
	return w.pool(t, "avg_pool_", []string{"out", "x"}, height*width)
}

// MaxPoolGradient computes the gradient of MaxPool's operand x. The operands
// are dx, x and dy.
func MaxPoolGradient(t Type, w Window) (Operation, error) {
	return w.pool(t, "max_pool_gradient_", []string{"dx", "x", "dy"}, w.Height*w.Width)
}

// AvgPoolGradient computes the gradient of AvgPool's operand x. The operands
// are dx and dy.
func AvgPoolGradient(t Type, w Window) (Operation, error) {
	return w.pool(t, "avg_pool_gradient_", []string{"dx", "dy"}, w.Height*w.Width)
}

func (w Window) pool(t Type, kernel string, operands []string, plane int) (Operation, error) {
	err := w.check("pool", w.Channels)
	if err == nil && w.Pad >= min(w.KernelHeight, w.KernelWidth) {
		err = fmt.Errorf("pool on a GPU: the padding of %d must be smaller than the kernel", w.Pad)
	}
	if err != nil {
		return Operation{}, err
	}
	n := w.Batch * w.Channels * plane
	return over("pool", kernel+t.suffix(), operands, n, append([]any{n}, w.parameters()...)...), nil
}
