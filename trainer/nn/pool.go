package nn

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// MaxPool2D is the largest element under a square kernel that moves over x
// (batch, channels, height, width) in strides. Pad rows and columns around each
// image are never the largest. The gradient goes to the first of equal elements
// in row-major order. NaN counts as the largest.
func MaxPool2D(x *gorgonia.Node, kernel, stride, pad int) (*gorgonia.Node, error) {
	return newPool("max pool", x, kernel, stride, pad, kernels[window]{
		maxPool[float32], maxPool[float64], maxPoolGradient[float32], maxPoolGradient[float64], false,
	})
}

// AvgPool2D is the mean of the elements under a kernel that moves like
// MaxPool2D's. The pad counts neither in the sum nor in the divisor.
func AvgPool2D(x *gorgonia.Node, kernel, stride, pad int) (*gorgonia.Node, error) {
	return newPool("average pool", x, kernel, stride, pad, kernels[window]{
		avgPool[float32], avgPool[float64], avgPoolGradient[float32], avgPoolGradient[float64], false,
	})
}

func newPool(what string, x *gorgonia.Node, size, stride, pad int, k kernels[window]) (*gorgonia.Node, error) {
	if _, err := floats(what, x); err != nil {
		return nil, err
	}
	w, err := newWindow(what, x, size, size, stride, pad)
	if err != nil {
		return nil, err
	}
	if pad >= size {
		return nil, fmt.Errorf("%s: a pad of %d needs a kernel larger than %d", what, pad, size)
	}
	return k.apply(fmt.Sprintf("%s %v", what, w), w, x, w.out(w.channels))
}

func maxPool[T float](w window, y []T, in [][]T) {
	x := in[0]
	for ; len(x) > 0; x, y = x[w.plane():], y[w.places():] {
		at := 0
		for row := range w.outHeight {
			top, bottom := w.inside(row, w.kernelHeight, w.height)
			for column := range w.outWidth {
				left, right := w.inside(column, w.kernelWidth, w.width)
				most := x[top*w.width+left]
				for i := top; i < bottom; i++ {
					for _, v := range x[i*w.width+left : i*w.width+right] {
						most = max(most, v)
					}
				}
				y[at] = most
				at++
			}
		}
	}
}

func maxPoolGradient[T float](w window, dx []T, in [][]T) {
	x, dy := in[0], in[1]
	clear(dx)
	for ; len(x) > 0; x, dx, dy = x[w.plane():], dx[w.plane():], dy[w.places():] {
		at := 0
		for row := range w.outHeight {
			top, bottom := w.inside(row, w.kernelHeight, w.height)
			for column := range w.outWidth {
				left, right := w.inside(column, w.kernelWidth, w.width)
				dx[largest(x, w.width, top, bottom, left, right)] += dy[at]
				at++
			}
		}
	}
}

// largest returns the index of the first of the largest elements in a rectangle
// of an image of the given width, or of the first NaN. It avoids branches that
// depend on the numbers, which the processor would mispredict.
func largest[T float](x []T, width, top, bottom, left, right int) int {
	best := top*width + left
	most := x[best]
	for row := top; row < bottom; row++ {
		for i, v := range x[row*width+left : row*width+right] {
			if v > most {
				best = row*width + left + i
			}
			most = max(most, v)
		}
	}
	if most == most {
		return best
	}
	for best = top*width + left; x[best] == x[best]; best++ {
		if best%width == right-1 {
			best += width - (right - left)
		}
	}
	return best
}

func avgPool[T float](w window, y []T, in [][]T) {
	x := in[0]
	for ; len(x) > 0; x, y = x[w.plane():], y[w.places():] {
		at := 0
		for row := range w.outHeight {
			top, bottom := w.inside(row, w.kernelHeight, w.height)
			for column := range w.outWidth {
				left, right := w.inside(column, w.kernelWidth, w.width)
				sum := T(0)
				for i := top; i < bottom; i++ {
					for _, v := range x[i*w.width+left : i*w.width+right] {
						sum += v
					}
				}
				y[at] = sum / T((bottom-top)*(right-left))
				at++
			}
		}
	}
}

func avgPoolGradient[T float](w window, dx []T, in [][]T) {
	dy := in[1]
	clear(dx)
	for ; len(dx) > 0; dx, dy = dx[w.plane():], dy[w.places():] {
		at := 0
		for row := range w.outHeight {
			top, bottom := w.inside(row, w.kernelHeight, w.height)
			for column := range w.outWidth {
				left, right := w.inside(column, w.kernelWidth, w.width)
				share := dy[at] / T((bottom-top)*(right-left))
				for i := top; i < bottom; i++ {
					for k := left; k < right; k++ {
						dx[i*w.width+k] += share
					}
				}
				at++
			}
		}
	}
}
