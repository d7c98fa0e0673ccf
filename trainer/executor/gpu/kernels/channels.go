package kernels

import (
	"fmt"
	"math"
)

// Channels is how x (batch, channels, space) lies in memory. Space is 1 for
// (batch, channels) and height times width for images.
type Channels struct{ Batch, Channels, Space int }

// sum is an operation that reduces each channel to one number. The operands of
// the kernel are followed by memory for parts, and it returns their number.
func (c Channels) sum(t Type, kernel string, operands []string, number float64) (o Operation, parts int, err error) {
	n := elements(c.Batch, c.Space)
	team := teamFor(n, c.Space == 1)
	parts, size := team.parts(c.Channels, n)
	o = Operation{Operands: operands}
	return o.then(launch("norm", kernel+t.suffix(), team.grid(c.Channels*parts), blockThreads, append(all(len(operands)), o.partial(parts)),
		number, c.Batch, c.Channels, c.Space, team.lanes, flag(team.across), parts, size)), parts, c.check()
}

// divided is sum for a result that is divided by divisor.
func (c Channels) divided(t Type, kernel string, operands []string, divisor float64) (Operation, error) {
	o, parts, err := c.sum(t, kernel, operands, divisor)
	return o.finish(t, c.Channels, parts, divisor), err
}

func (c Channels) check() error { return check("channels", elements(c.Batch, c.Channels, c.Space)) }

// count is the number of elements of each channel.
func (c Channels) count() float64 { return float64(c.Batch * c.Space) }

// ChannelSums adds the elements of each channel: the gradient of a bias. The
// operands are out and x.
func ChannelSums(t Type, c Channels) (Operation, error) {
	return c.divided(t, "channel_sums_", []string{"out", "x"}, 1)
}

// ChannelMeans is the batch mean of nn.BatchNorm in training. The operands are
// out and x. In an evaluation it is a copy of the running mean.
func ChannelMeans(t Type, c Channels) (Operation, error) {
	return c.divided(t, "channel_sums_", []string{"out", "x"}, c.count())
}

// ChannelVariances is the batch variance of nn.BatchNorm in training. The
// operands are out, x and the batch mean. The caller refuses one element per
// channel. In an evaluation it is a copy of the running variance.
func ChannelVariances(t Type, c Channels) (Operation, error) {
	return c.divided(t, "channel_variances_", []string{"out", "x", "mean"}, c.count())
}

// Normalise is the result of nn.BatchNorm. The operands are out, x, scale, bias,
// mean and variance.
func Normalise(t Type, c Channels, epsilon float64) (Operation, error) {
	return c.rows(t, "normalise_", []string{"out", "x", "scale", "bias", "mean", "variance"}, epsilon)
}

// ScaleGradient is the gradient of the scale of nn.BatchNorm. The operands are
// out, x, mean, variance and dy.
func ScaleGradient(t Type, c Channels, epsilon float64) (Operation, error) {
	o, parts, err := c.sum(t, "scale_gradient_", []string{"out", "x", "mean", "variance", "dy"}, epsilon)
	if parts > 1 {
		o.Scratch = 8 * c.Channels * parts
		team := teamFor(parts, false)
		o = o.then(launch("norm", "finish_scale_"+t.suffix(), team.grid(c.Channels), blockThreads, []int{0, len(o.Operands), 3},
			epsilon, c.Channels, parts, team.lanes))
	}
	return o, err
}

// NormGradient is the gradient of x of nn.BatchNorm. The operands are dx, x,
// scale, mean, variance, dy and the gradients of scale and bias. Train includes
// what goes through the batch's mean and variance.
func NormGradient(t Type, c Channels, epsilon float64, train bool) (Operation, error) {
	return c.rows(t, "norm_gradient_", []string{"dx", "x", "scale", "mean", "variance", "dy", "scale gradient", "bias gradient"}, epsilon, train)
}

// rows is an operation on elements whose teams take the elements of one channel
// of one image. With train, the kernel also takes the number of elements of a
// channel.
func (c Channels) rows(t Type, kernel string, operands []string, epsilon float64, train ...bool) (Operation, error) {
	team := teamFor(c.Space, false)
	scalars, last := []any{epsilon}, []any{c.Batch, c.Channels, c.Space, team.lanes}
	for _, yes := range train {
		scalars, last = append(scalars, c.count()), append(last, flag(yes))
	}
	o := Operation{Operands: operands}
	if elements(c.Batch, c.Channels, c.Space) == 0 {
		return o, nil
	}
	return o.then(launch("norm", kernel+t.suffix(), team.grid(c.Batch*c.Channels), blockThreads, all(len(operands)), append(scalars, last...)...)), c.check()
}

// Dropout is nn.Dropout in training, of a value or of its gradient: it drops
// elements with probability p. The operands are out, x and stream. The stream is
// the four words of random.Stream.Words: that of seed and name, derived for the
// step and the virtual worker. In an evaluation dropout is a copy.
func Dropout(t Type, p float64, n int) (Operation, error) {
	if !(p >= 0 && p < 1) {
		return Operation{}, fmt.Errorf("dropout on a GPU: the probability is %v, want at least 0 and less than 1", p)
	}
	groups, lowest := divide(n, 8), min(int(math.Round(p*(1<<16))), 1<<16-1)
	return over("dropout", "dropout_"+t.suffix(), []string{"out", "x", "stream"}, groups, t.number(1/(1-p)), n, groups, lowest), check("dropout", n)
}
