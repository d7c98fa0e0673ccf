package nn

import (
	"fmt"

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
	what := "convolution"
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
	c := convolution{window: w, filters: fs[0], dtype: dtype}
	return c.operation("convolution", w.out(fs[0]), convolve[float32], convolve[float64], c.gradients).apply(x, filters)
}

// convolution is the product of the matrix of filters, one row per filter, and
// the matrix of an image's patches (Chellapilla et al., "High performance
// convolutional neural networks for document processing", 2006).
type convolution struct {
	window
	filters int
	dtype   tensor.Dtype
}

func (c convolution) operation(what string, shape tensor.Shape, f32, f64 func(convolution) kernel, diff differentiate) *op {
	return &op{
		what: fmt.Sprintf("%s %v", what, c.window),
		out:  operand{dtype: c.dtype, shape: shape},
		run:  choose(c.dtype, f32, f64, c),
		diff: diff,
	}
}

func (c convolution) gradients(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	dx, err := c.operation("gradient of x of convolution", in[0].Shape(), imageGradient[float32], imageGradient[float64], nil).apply(in[1], dy)
	if err != nil {
		return nil, err
	}
	df, err := c.operation("gradient of the filters of convolution", in[1].Shape(), filterGradient[float32], filterGradient[float64], nil).apply(in[0], dy)
	return gorgonia.Nodes{dx, df}, err
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

func convolve[T float](c convolution) kernel {
	patches := scratch[T](c)
	p := product{m: c.filters, n: c.places(), k: c.patch()}
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		for i := range c.batch {
			columns := patchesOf(c, row[T](in[0], i, c.image()), patches)
			gemm(p, data[T](in[1]), columns, 0, row[T](out, i, c.filters*c.places()))
		}
		return nil
	}
}

func imageGradient[T float](c convolution) kernel {
	patches := scratch[T](c)
	p := product{m: c.patch(), n: c.places(), k: c.filters, left: true}
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		for i := range c.batch {
			dx, dy := row[T](out, i, c.image()), row[T](in[1], i, c.filters*c.places())
			if c.direct() {
				gemm(p, data[T](in[0]), dy, 0, dx)
				continue
			}
			gemm(p, data[T](in[0]), dy, 0, patches)
			addPatches(c.window, dx, patches)
		}
		return nil
	}
}

// filterGradient adds the images one after the other.
func filterGradient[T float](c convolution) kernel {
	patches := scratch[T](c)
	p := product{m: c.filters, n: c.patch(), k: c.places(), right: true}
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		beta := T(0)
		for i := range c.batch {
			columns := patchesOf(c, row[T](in[0], i, c.image()), patches)
			gemm(p, row[T](in[1], i, c.filters*c.places()), columns, beta, data[T](out))
			beta = 1
		}
		return nil
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
