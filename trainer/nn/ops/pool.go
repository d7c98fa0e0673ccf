package ops

import (
	"fmt"

	gpu "github.com/plx-run/plx/trainer/executor/gpu/kernels"

	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
)

// MaxPool2D returns the maximum over each position of a square kernel that
// slides over x (batch, channels, height, width). The padding is never the
// maximum. If several elements are the maximum, the first in row-major order
// gets the gradient. NaN counts as the largest value.
func MaxPool2D(x *gorgonia.Node, kernel, stride, pad int) (*gorgonia.Node, error) {
	return MaxPool(x, Walk{kernel, stride, pad}, Walk{kernel, stride, pad})
}

// MaxPool is like MaxPool2D, with separate kernel sizes, strides and pads for
// the two directions.
func MaxPool(x *gorgonia.Node, down, across Walk) (*gorgonia.Node, error) {
	return newPool("max pool", false, x, down, across, kernels[pool]{
		maxPool[float32], maxPool[float64], maxPoolGradient[float32], maxPoolGradient[float64], false, nil,
	})
}

// AvgPool2D returns the mean over each position of a square kernel that slides
// over x (batch, channels, height, width). The mean does not include the
// padding.
func AvgPool2D(x *gorgonia.Node, kernel, stride, pad int) (*gorgonia.Node, error) {
	return AvgPool(x, Walk{kernel, stride, pad}, Walk{kernel, stride, pad})
}

// AvgPool is like AvgPool2D, with separate kernel sizes, strides and pads for
// the two directions.
func AvgPool(x *gorgonia.Node, down, across Walk) (*gorgonia.Node, error) {
	return newPool("average pool", true, x, down, across, kernels[pool]{
		avgPool[float32], avgPool[float64], avgPoolGradient[float32], avgPoolGradient[float64], false, nil,
	})
}

// Walk describes how a pooling kernel moves along one axis of an image.
type Walk struct {
	Kernel int // length of the kernel along the axis, in elements
	Stride int
	Pad    int // elements of padding before and after the image
}

func (w Walk) steps() Window { return Window{Stride: w.Stride, Pad: w.Pad} }

func newPool(what string, mean bool, x *gorgonia.Node, down, across Walk, k kernels[pool]) (*gorgonia.Node, error) {
	if _, err := floats(what, x); err != nil {
		return nil, err
	}
	p, err := newPlaces(what, x, down, across)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s %v", what, p.window)
	if down != across {
		name += fmt.Sprintf(", across stride %d pad %d", across.Stride, across.Pad)
		return k.apply(name, p, x, p.out(p.channels))
	}
	k.gpu = func(_ int, gradient bool) *operation.GPU { return poolOnGPU(p.window.gpu(), mean, gradient) }
	return k.apply(name, p, x, p.out(p.channels))
}

func poolOnGPU(w gpu.Window, mean, gradient bool) *operation.GPU {
	kernels := gpu.MaxPool
	switch {
	case mean && gradient:
		kernels = gpu.AvgPoolGradient
	case mean:
		kernels = gpu.AvgPool
	case gradient:
		kernels = gpu.MaxPoolGradient
	}
	g := by(func(t gpu.Type) (gpu.Operation, error) { return kernels(t, w) })
	if mean && gradient {
		g.Inputs = func(bool) []int { return []int{1} } // the kernel of the gradient reads only input 1, the gradient of the result, and not the images
	}
	return g
}

// newPlaces checks the parameters and computes the part of the image that the
// kernel covers at each position. Its errors begin with what.
func newPlaces(what string, x *gorgonia.Node, down, across Walk) (pool, error) {
	w, err := newWindow(what, x, down.Kernel, across.Kernel, down.steps(), across.steps())
	if err != nil {
		return pool{}, err
	}
	for _, along := range []Walk{down, across} {
		if along.Pad >= along.Kernel {
			return pool{}, fmt.Errorf("%s: a pad of %d needs a kernel larger than %d", what, along.Pad, along.Pad)
		}
	}
	p := pool{window: w}
	for row := range w.outHeight {
		top, bottom := w.down.inside(row, w.kernelHeight, w.height)
		for column := range w.outWidth {
			left, right := w.across.inside(column, w.kernelWidth, w.width)
			p.covered = append(p.covered, rectangle{top, bottom, left, right})
		}
	}
	return p, nil
}

// pool holds the parameters of the pooling kernels.
type pool struct {
	window
	covered []rectangle // for each position of the window, the part of the image that it covers
}

// rectangle is the part of an image in rows top to bottom-1 and columns left
// to right-1.
type rectangle struct{ top, bottom, left, right int }

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

// largest returns the index of the largest element in a rectangle of an image
// with the given width. Of several largest elements it returns the first. If
// there is a NaN, it returns the index of the first NaN. The main loop has no
// branches that depend on the values in unpredictable ways, because the
// processor would mispredict them.
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

// GlobalAvgPool returns the mean of each channel of x (batch, channels,
// height, width), with shape (batch, channels).
func GlobalAvgPool(x *gorgonia.Node) (*gorgonia.Node, error) {
	const what = "global average pool"
	if _, err := floats(what, x); err != nil {
		return nil, err
	}
	s := x.Shape()
	if len(s) != 4 {
		return nil, fmt.Errorf("%s: x is %s, want (batch, channels, height, width)", what, told(x))
	}
	y, err := AvgPool(x, Walk{Kernel: s[2], Stride: 1}, Walk{Kernel: s[3], Stride: 1})
	if err != nil {
		return nil, err
	}
	return Flatten(y)
}
