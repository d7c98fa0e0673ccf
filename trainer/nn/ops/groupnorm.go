package ops

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/gorgonia"
)

// GroupNorm divides the channels of each row of x (batch, channels, ...) into
// groups of consecutive channels. It normalizes the elements of every group to
// mean 0 and variance 1 (Wu and He, "Group normalization", ECCV 2018). The
// variance is the mean squared deviation, plus epsilon. There is no scale and
// no bias.
//
// Unlike BatchNorm, it computes the same in training and in an evaluation.
func GroupNorm(x *gorgonia.Node, groups int, epsilon float64) (*gorgonia.Node, error) {
	what := fmt.Sprintf("group norm of %d groups", groups)
	if _, err := floats(what, x); err != nil {
		return nil, err
	}
	s := x.Shape()
	if len(s) < 2 || groups < 1 || s[1]%groups != 0 {
		return nil, fmt.Errorf("%s: x is %s, want (batch, channels, ...) and a number of groups that divides the channels", what, told(x))
	}
	if !(epsilon > 0) || math.IsInf(epsilon, 1) {
		return nil, fmt.Errorf("%s: epsilon is %v, want more than 0", what, epsilon)
	}
	p := grouping{size: memory.Elements(s[1:]) / groups, epsilon: epsilon}
	return kernels[grouping]{groupNorm[float32], groupNorm[float64], groupNormGradient[float32], groupNormGradient[float64], false, nil}.
		apply(fmt.Sprintf("%s epsilon %v", what, epsilon), p, x, s)
}

// grouping divides an array into consecutive groups; size is the number of
// elements of a group.
type grouping struct {
	size    int
	epsilon float64
}

// groupMoments returns the mean of a group and 1 / sqrt(variance + epsilon).
func groupMoments[T float](p grouping, group []T) (mean, inverse float64) {
	for _, v := range group {
		mean += float64(v)
	}
	mean /= float64(p.size)
	squares := 0.0
	for _, v := range group {
		d := float64(v) - mean
		squares += float64(d * d)
	}
	return mean, 1 / math.Sqrt(squares/float64(p.size)+p.epsilon)
}

func groupNorm[T float](p grouping, y []T, in [][]T) {
	for x := in[0]; len(x) > 0; x, y = x[p.size:], y[p.size:] {
		mean, inverse := groupMoments(p, x[:p.size])
		for i, v := range x[:p.size] {
			y[i] = T((float64(v) - mean) * inverse)
		}
	}
}

// groupNormGradient computes the gradient of x, including the effect of x on a
// group's mean and variance.
func groupNormGradient[T float](p grouping, dx []T, in [][]T) {
	dy := in[1]
	for x := in[0]; len(x) > 0; x, dx, dy = x[p.size:], dx[p.size:], dy[p.size:] {
		mean, inverse := groupMoments(p, x[:p.size])
		shift, slope := 0.0, 0.0
		for i, v := range x[:p.size] {
			d := float64(dy[i])
			shift += d
			slope += float64(d * float64((float64(v)-mean)*inverse))
		}
		shift, slope = shift/float64(p.size), slope/float64(p.size)
		for i, v := range x[:p.size] {
			normal := float64((float64(v) - mean) * inverse)
			dx[i] = T(inverse * (float64(dy[i]) - shift - float64(normal*slope)))
		}
	}
}
