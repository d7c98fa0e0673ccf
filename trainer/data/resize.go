package data

import (
	"fmt"
	"math"
	"slices"
)

// resize scales the picture so that its shorter side has the given length, and
// keeps its proportions. Each new pixel is a weighted mean of the old pixels
// around it (triangle filter); when the picture shrinks, the filter widens in
// proportion. The weights are integers, so the result is the same on every
// machine.
func (p Picture) resize(shorter int) (Picture, error) {
	if shorter == 0 || min(p.Height, p.Width) == shorter {
		return p, nil
	}
	longer := shorter * max(p.Height, p.Width) / min(p.Height, p.Width)
	if longer > maxImage/shorter {
		return p, fmt.Errorf("resize a picture of %d x %d pixels: it would have %d x %d, at most %d are made", p.Width, p.Height, longer, shorter, maxImage)
	}
	to := Picture{Height: shorter, Width: longer}
	if p.Height > p.Width {
		to.Height, to.Width = longer, shorter
	}
	to.Label = p.Label
	across, down := blends(p.Width, to.Width), blends(p.Height, to.Height)
	for channel := range slices.Chunk(p.Pixels, p.plane()) {
		narrow := make([]uint8, p.Height*to.Width)
		for i, b := range across {
			b.along(narrow[i:], to.Width, channel, p.Width, 1, p.Height)
		}
		done := make([]uint8, to.plane())
		for i, b := range down {
			b.along(done[i*to.Width:], 1, narrow, 1, to.Width, to.Width)
		}
		to.Pixels = append(to.Pixels, done...)
	}
	return to, nil
}

// blend describes how one output pixel is computed: as a weighted sum of the
// input pixels from index first on.
type blend struct {
	first   int
	weights []int32 // weights of the input pixels in fixed-point arithmetic; their sum is about the constant one, which means 1.0
}

// one represents the weight 1.0 in fixed-point arithmetic. It is 1 shifted
// left by oneBits.
const oneBits, one = 22, 1 << oneBits

// blends returns the blend of each output pixel for scaling an axis of an
// image. The parameters from and to are the numbers of input and output pixels
// on the axis.
func blends(from, to int) []blend {
	scale := float64(from) / float64(to)
	reach := max(scale, 1)
	all := make([]blend, to)
	for i := range all {
		middle := float64((float64(i) + 0.5) * scale)
		first, last := max(0, int(middle-reach+0.5)), min(from, int(middle+reach+0.5))
		near, sum := make([]float64, last-first), 0.0
		for k := range near {
			near[k] = max(0, 1-math.Abs(float64(first+k)+0.5-middle)/reach)
			sum += near[k]
		}
		all[i] = blend{first, make([]int32, len(near))}
		for k, v := range near {
			all[i].weights[k] = int32(math.Round(v / sum * one))
		}
	}
	return all
}

// along computes the same output pixel of n parallel rows or columns. toStep
// is the distance, in the slice to, between the output pixels of neighboring
// rows. fromStep is the same distance in the slice from. step is the distance
// in the slice from between two input pixels that are added.
func (b blend) along(to []uint8, toStep int, from []uint8, fromStep, step, n int) {
	for i := range n {
		sum := int64(one / 2)
		for k, w := range b.weights {
			sum += int64(w) * int64(from[i*fromStep+(b.first+k)*step])
		}
		to[i*toStep] = uint8(min(sum>>oneBits, 255))
	}
}
