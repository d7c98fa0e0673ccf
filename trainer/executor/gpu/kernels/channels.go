package kernels

import (
	"fmt"
	"math"
)

// Channels is the shape (batch, channels, space) of an operand x. Space is 1
// for inputs of shape (batch, channels), and height times width for images.
type Channels struct{ Batch, Channels, Space int }

// sum returns an operation that reduces each channel to one number. It also
// returns the number of parts into which it divides the sum of a channel. If
// there are several parts, the kernel has one more operand: scratch memory for
// the sums of the parts.
func (c Channels) sum(t Type, kernel string, operands []string, number float64) (o Operation, parts int, err error) {
	n := elements(c.Batch, c.Space)
	team := teamFor(n, c.Space == 1)
	parts, size := team.parts(c.Channels, n)
	o = Operation{Operands: operands}
	return o.then(launch("norm", kernel+t.suffix(), team.grid(c.Channels*parts), blockThreads, append(all(len(operands)), o.partial(parts)),
		number, c.Batch, c.Channels, c.Space, team.lanes, flag(team.across), parts, size)), parts, c.check()
}

// divided returns an operation that reduces each channel to one number, as sum
// does, and divides the number by divisor.
func (c Channels) divided(t Type, kernel string, operands []string, divisor float64) (Operation, error) {
	o, parts, err := c.sum(t, kernel, operands, divisor)
	return o.finish(t, c.Channels, parts, divisor), err
}

func (c Channels) check() error { return check("channels", elements(c.Batch, c.Channels, c.Space)) }

// count returns the number of elements of each channel.
func (c Channels) count() float64 { return float64(c.Batch * c.Space) }

// ChannelSums adds the elements of each channel, which gives the gradient of a
// bias. The operands are out and x.
func ChannelSums(t Type, c Channels) (Operation, error) {
	return c.divided(t, "channel_sums_", []string{"out", "x"}, 1)
}

// ChannelMeans computes the batch mean of nn.BatchNorm in training. The
// operands are out and x. In an evaluation nn.BatchNorm copies the running
// mean instead.
func ChannelMeans(t Type, c Channels) (Operation, error) {
	return c.divided(t, "channel_sums_", []string{"out", "x"}, c.count())
}

// ChannelVariances computes the batch variance of nn.BatchNorm in training.
// The operands are out, x and the batch mean. The caller must refuse channels
// of one element. In an evaluation nn.BatchNorm copies the running variance
// instead.
func ChannelVariances(t Type, c Channels) (Operation, error) {
	return c.divided(t, "channel_variances_", []string{"out", "x", "mean"}, c.count())
}

// Normalise computes the result of nn.BatchNorm. The operands are out, x,
// scale, bias, mean and variance.
func Normalise(t Type, c Channels, epsilon float64) (Operation, error) {
	return c.rows(t, "normalise_", []string{"out", "x", "scale", "bias", "mean", "variance"}, epsilon)
}

// ScaleGradient computes the gradient of nn.BatchNorm's scale. The operands
// are out, x, mean, variance and dy.
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

// NormGradient computes the gradient of nn.BatchNorm's input x. The operands
// are dx, x, scale, mean, variance, dy and the gradients of scale and bias. If
// train is true, the gradient includes the effect of x on the batch's mean and
// variance.
func NormGradient(t Type, c Channels, epsilon float64, train bool) (Operation, error) {
	return c.rows(t, "norm_gradient_", []string{"dx", "x", "scale", "mean", "variance", "dy", "scale gradient", "bias gradient"}, epsilon, train)
}

// rows returns an operation on all elements of x. Each team of threads takes
// the elements of one channel of one image. If the caller passes train, the
// kernel also gets two parameters: the number of elements of a channel and the
// value of train.
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

// Dropout is nn.Dropout in training, for the forward result or for the
// gradient: it sets elements to 0 with probability p. The operands are out, x
// and stream. The stream is the four words of random.Stream.Words, derived
// from seed, name, step and virtual worker. In an evaluation nn.Dropout copies
// x instead.
func Dropout(t Type, p float64, n int) (Operation, error) {
	if !(p >= 0 && p < 1) {
		return Operation{}, fmt.Errorf("dropout on a GPU: the probability is %v, want at least 0 and less than 1", p)
	}
	groups, lowest := divide(n, 8), min(int(math.Round(p*(1<<16))), 1<<16-1)
	return over("dropout", "dropout_"+t.suffix(), []string{"out", "x", "stream"}, groups, t.number(1/(1-p)), n, groups, lowest), check("dropout", n)
}
