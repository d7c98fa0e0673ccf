package ops

import (
	"errors"
	"fmt"
	"math"

	gpu "github.com/plx-run/plx/trainer/executor/gpu/kernels"

	"github.com/plx-run/plx/trainer/nn/recurrent"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Normalised holds the nodes that BatchNorm adds to a graph.
type Normalised struct {
	Out *gorgonia.Node // the normalized x, of the same shape

	// BatchMean and BatchVariance have shape (channels). In training they are
	// the mean and variance of the batch, in an evaluation the running mean
	// and variance. The variance is the mean squared deviation (divided by n,
	// not n-1). Neither node can be differentiated; the gradient of Out
	// already includes the dependence on both.
	BatchMean, BatchVariance *gorgonia.Node

	// Momentum defines how a training step updates the running mean and
	// variance: running = Momentum * running + (1 - Momentum) * batch. Here
	// batch is the mean over the batches of all virtual workers.
	Momentum float64
}

// BatchNorm normalizes every channel of x to mean 0 and variance 1, multiplies
// it by the channel's scale and adds the channel's bias. The method is that of
// Ioffe and Szegedy, "Batch normalization", ICML 2015. Mean and variance are
// taken over the batch and all pixels. x has shape (batch, channels) or
// (batch, channels, height, width). The four vectors have shape (channels). In
// an evaluation, the running mean and variance replace the batch's.
//
// The operations keep no state: package trainer updates the running mean and
// variance, which have no gradient.
//
// The batch consists of the rows of one virtual worker. If a channel has only
// one element in training, running the graph fails, because that element would
// always be normalized to zero.
//
// Executors that do not call Prepare of operation.Contextual, such as
// Gorgonia's own machines, always run the evaluation form.
func BatchNorm(x, scale, bias, runningMean, runningVariance *gorgonia.Node, momentum, epsilon float64, name string) (Normalised, error) {
	what := fmt.Sprintf("batch norm %q", name)
	l, dtype, err := channelled(what, x, scale, bias, runningMean, runningVariance)
	if err != nil {
		return Normalised{}, err
	}
	if !(momentum >= 0 && momentum < 1) {
		return Normalised{}, fmt.Errorf("%s: the momentum is %v, want at least 0 and less than 1", what, momentum)
	}
	if !(epsilon > 0) || math.IsInf(epsilon, 1) {
		return Normalised{}, fmt.Errorf("%s: epsilon is %v, want more than 0", what, epsilon)
	}
	n := norm{what: fmt.Sprintf("%s epsilon %v", what, epsilon), dtype: dtype, layout: l, epsilon: epsilon, call: new(operation.Call)}
	mean := choose(dtype, batchMean[float32], batchMean[float64], n)
	variance := chooseValues(dtype, batchVariance[float32], batchVariance[float64], n)
	o := newOp(n.what, dtype, x.Shape(), choose(dtype, normalise[float32], normalise[float64], n)).with(n.gradients, 2).on(by(func(t gpu.Type) (gpu.Operation, error) { return gpu.Normalise(t, l.gpu(), epsilon) }))
	b, out := &adder{}, Normalised{Momentum: momentum}
	out.BatchMean = b.apply(n.statistic("mean", gpu.ChannelMeans, mean, 2), x, runningMean)
	out.BatchVariance = b.apply(n.statistic("variance", gpu.ChannelVariances, variance, 3), x, out.BatchMean, runningVariance)
	out.Out = b.apply(o, x, scale, bias, out.BatchMean, out.BatchVariance)
	return out, b.err
}

var errOneElement = errors.New("a virtual worker has one element per channel, which has no variance: give each more rows")

// norm holds the parameters of one batch norm's kernels and adds its
// operations to the graph. The kernels share scratch memory and call, the
// parameters of the next run.
type norm struct {
	layout
	what    string
	dtype   tensor.Dtype
	epsilon float64
	call    *operation.Call
}

// statistic returns an operation that computes the mean or the variance of
// each channel in training. In an evaluation, the operation returns its last
// input, the running mean or variance. It has no gradients.
func (n norm) statistic(which string, kernels func(gpu.Type, gpu.Channels) (gpu.Operation, error), run kernel, inputs int) *contextual {
	o := newOp(fmt.Sprintf("%s of %s", which, n.what), n.dtype, tensor.Shape{n.channels}, run).with(nil, inputs).makes(RowsAveraged)
	g := &operation.GPU{Call: n.call}
	g.Kernels = func(t gpu.Type, train bool) (gpu.Operation, error) {
		switch {
		case !train:
			return gpu.Copy(t, n.channels)
		case inputs == 3 && n.count() == 1:
			return gpu.Operation{}, errOneElement
		}
		return kernels(t, n.layout.gpu())
	}
	g.Inputs = func(train bool) []int {
		if train {
			return []int{0, 1}[:inputs-1] // in training, the GPU kernel does not read the last input, the running mean or variance
		}
		return []int{inputs - 1}
	}
	return &contextual{op: o.on(g), call: n.call}
}

// gradients adds the gradients of x, scale and bias to the graph. In training,
// the gradient of x includes its effect on the batch's mean and variance.
func (n norm) gradients(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
	x, scale, mean, variance := in[0], in[1], in[3], in[4]
	dBias, err := sumChannels("gradient of bias of "+n.what, dy)
	b := &adder{what: n.what, dtype: n.dtype, err: err}
	dScale := b.addOn(by(func(t gpu.Type) (gpu.Operation, error) { return gpu.ScaleGradient(t, n.layout.gpu(), n.epsilon) }), "scale", choose(n.dtype, scaleGradient[float32], scaleGradient[float64], n), scale.Shape(), x, mean, variance, dy)
	o := newOp("gradient of x of "+n.what, n.dtype, x.Shape(), pass(n.dtype, normGradient[float32], normGradient[float64], n))
	o.gpu = &operation.GPU{Call: n.call, Kernels: func(t gpu.Type, train bool) (gpu.Operation, error) {
		return gpu.NormGradient(t, n.layout.gpu(), n.epsilon, train)
	}}
	dx := b.apply(&contextual{op: o, call: n.call}, x, scale, mean, variance, dy, dScale, dBias)
	return gorgonia.Nodes{dx, dScale, dBias, nil, nil}, b.err
}

// batchMean computes the mean of each channel. Its inputs are x and the
// running mean.
func batchMean[T float](n norm, out []T, in [][]T) {
	if !n.call.Train {
		copy(out, in[1])
		return
	}
	channelSums(n.layout, out, in)
	for c, sum := range n.of {
		out[c] = T(sum / float64(n.count()))
	}
}

// batchVariance computes the variance of each channel. Its inputs are x, the
// mean and the running variance. It makes a second pass over x: the difference
// of the mean square and the squared mean would lose precision if the mean is
// large.
func batchVariance[T float](n norm, out gorgonia.Value, in []gorgonia.Value) error {
	y, x, mean := data[T](out), data[T](in[0]), data[T](in[1])
	if !n.call.Train {
		copy(y, data[T](in[2]))
		return nil
	}
	if n.count() == 1 {
		return errOneElement
	}
	clear(n.of)
	at := 0
	for range n.batch {
		for c, m := range mean {
			sum := 0.0
			for _, v := range x[at : at+n.space] {
				d := float64(v) - float64(m)
				sum += float64(d * d)
			}
			n.of[c] += sum
			at += n.space
		}
	}
	for c, sum := range n.of {
		y[c] = T(sum / float64(n.count()))
	}
	return nil
}

// inverse returns 1 / sqrt(variance + epsilon), the factor that normalizes a
// channel.
func (n norm) inverse(variance float64) float64 { return 1 / math.Sqrt(variance+n.epsilon) }

// normalise computes the batch norm. Its inputs are x, scale, bias, mean and
// variance.
func normalise[T float](n norm, y []T, in [][]T) {
	x, scale, bias := in[0], in[1], in[2]
	mean, variance := in[3], in[4]
	for c, v := range variance {
		n.of[c] = float64(scale[c]) * n.inverse(float64(v))
	}
	at := 0
	for range n.batch {
		for c, factor := range n.of {
			f, m, b := T(factor), mean[c], bias[c]
			for i, v := range x[at : at+n.space] {
				y[at+i] = T((v-m)*f) + b
			}
			at += n.space
		}
	}
}

// scaleGradient computes the gradient of scale. Its inputs are x, mean,
// variance and dy, the gradient of the result.
func scaleGradient[T float](n norm, out []T, in [][]T) {
	x, mean, variance, dy := in[0], in[1], in[2], in[3]
	clear(n.of)
	at := 0
	for range n.batch {
		for c, m := range mean {
			sum := 0.0
			for i, v := range x[at : at+n.space] {
				sum += float64(float64(v-m) * float64(dy[at+i]))
			}
			n.of[c] += sum
			at += n.space
		}
	}
	for c, sum := range n.of {
		out[c] = T(sum * n.inverse(float64(variance[c])))
	}
}

// normGradient returns a pass that computes the gradient of x. The pass's
// inputs are x, scale, mean, variance, dy and the gradients of scale and bias.
// In training, the gradients of scale and bias give the effect of x on the
// batch's mean and variance.
func normGradient[T float](n norm) recurrent.Pass[T] {
	type slope struct{ factor, mean, shift, slope T }
	slopes := make([]slope, n.channels)
	return func(dx []T, in [][]T) {
		x, dy := in[0], in[4]
		scale, mean, variance, dScale, dBias := in[1], in[2], in[3], in[5], in[6]
		count := float64(n.count())
		for c := range slopes {
			inverse := n.inverse(float64(variance[c]))
			s := slope{factor: T(float64(scale[c]) * inverse), mean: mean[c]}
			if n.call.Train {
				s.shift, s.slope = T(float64(dBias[c])/count), T(float64(dScale[c])*inverse/count)
			}
			slopes[c] = s
		}
		at := 0
		for range n.batch {
			for _, s := range slopes {
				for i, v := range x[at : at+n.space] {
					dx[at+i] = s.factor * ((dy[at+i] - s.shift) - T((v-s.mean)*s.slope))
				}
				at += n.space
			}
		}
	}
}
