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
	return newPool("max pool", x, kernel, stride, pad, kernels[pool]{
		maxPool[float32], maxPool[float64], maxPoolGradient[float32], maxPoolGradient[float64], false,
	})
}

// AvgPool2D is the mean of the elements under a kernel that moves like
// MaxPool2D's. The pad counts neither in the sum nor in the divisor.
func AvgPool2D(x *gorgonia.Node, kernel, stride, pad int) (*gorgonia.Node, error) {
	return newPool("average pool", x, kernel, stride, pad, kernels[pool]{
		avgPool[float32], avgPool[float64], avgPoolGradient[float32], avgPoolGradient[float64], false,
	})
}

func newPool(what string, x *gorgonia.Node, size, stride, pad int, k kernels[pool]) (*gorgonia.Node, error) {
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
	return k.apply(fmt.Sprintf("%s %v", what, w), pool{w, w.rectangles()}, x, w.out(w.channels))
}

// pool is the parameters of the kernels.
type pool struct {
	window
	covered []rectangle // by place of the window: the part of the image under it
}

// rectangle is the part [top, bottom) x [left, right) of an image.
type rectangle struct{ top, bottom, left, right int }

// rectangles returns what the kernel covers of an image, by place.
func (w window) rectangles() (all []rectangle) {
	for row := range w.outHeight {
		top, bottom := w.inside(row, w.kernelHeight, w.height)
		for column := range w.outWidth {
			left, right := w.inside(column, w.kernelWidth, w.width)
			all = append(all, rectangle{top, bottom, left, right})
		}
	}
	return all
}

func maxPool[T float](w pool, y []T, in [][]T) {
	x := in[0]
	for ; len(x) > 0; x, y = x[w.plane():], y[w.places():] {
		for at, r := range w.covered {
			most := x[r.top*w.width+r.left]
			for i := r.top; i < r.bottom; i++ {
				for _, v := range x[i*w.width+r.left : i*w.width+r.right] {
					most = max(most, v)
				}
			}
			y[at] = most
		}
	}
}

func maxPoolGradient[T float](w pool, dx []T, in [][]T) {
	x, dy := in[0], in[1]
	clear(dx)
	for ; len(x) > 0; x, dx, dy = x[w.plane():], dx[w.plane():], dy[w.places():] {
		for at, r := range w.covered {
			dx[largest(x, w.width, r)] += dy[at]
		}
	}
}

// largest returns the index of the first of the largest elements in a rectangle
// of an image of the given width, or of the first NaN. It avoids branches that
// depend on the numbers, which the processor would mispredict.
func largest[T float](x []T, width int, r rectangle) int {
	best := r.top*width + r.left
	most := x[best]
	for row := r.top; row < r.bottom; row++ {
		for i, v := range x[row*width+r.left : row*width+r.right] {
			if v > most {
				best = row*width + r.left + i
			}
			most = max(most, v)
		}
	}
	if most == most {
		return best
	}
	for best = r.top*width + r.left; x[best] == x[best]; best++ {
		if best%width == r.right-1 {
			best += width - (r.right - r.left)
		}
	}
	return best
}

func avgPool[T float](w pool, y []T, in [][]T) {
	x := in[0]
	for ; len(x) > 0; x, y = x[w.plane():], y[w.places():] {
		for at, r := range w.covered {
			sum := T(0)
			for i := r.top; i < r.bottom; i++ {
				for _, v := range x[i*w.width+r.left : i*w.width+r.right] {
					sum += v
				}
			}
			y[at] = sum / T((r.bottom-r.top)*(r.right-r.left))
		}
	}
}

func avgPoolGradient[T float](w pool, dx []T, in [][]T) {
	dy := in[1]
	clear(dx)
	for ; len(dx) > 0; dx, dy = dx[w.plane():], dy[w.places():] {
		for at, r := range w.covered {
			share := dy[at] / T((r.bottom-r.top)*(r.right-r.left))
			for i := r.top; i < r.bottom; i++ {
				for k := r.left; k < r.right; k++ {
					dx[i*w.width+k] += share
				}
			}
		}
	}
}
