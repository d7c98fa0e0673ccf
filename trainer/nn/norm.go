package nn

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
)

// batchMean takes x and the running mean.
func batchMean[T float](k normKernel) kernel {
	add := channelSums[T](k.sums)
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		if !k.call.Train {
			copy(data[T](out), data[T](in[1]))
			return nil
		}
		if err := add(out, in); err != nil {
			return err
		}
		for c, sum := range k.of {
			data[T](out)[c] = T(sum / float64(k.count()))
		}
		return nil
	}
}

// batchVariance takes x, the mean and the running variance. It needs a separate
// pass over x: the difference of mean square and squared mean would lose all
// precision if the mean is large.
func batchVariance[T float](k normKernel) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		y, x, mean := data[T](out), data[T](in[0]), data[T](in[1])
		if !k.call.Train {
			copy(y, data[T](in[2]))
			return nil
		}
		if k.count() == 1 {
			return fmt.Errorf("a virtual worker has one element per channel, which has no variance: give each more rows")
		}
		clear(k.of)
		at := 0
		for range k.batch {
			for c, m := range mean {
				sum := 0.0
				for _, v := range x[at : at+k.space] {
					d := float64(v) - float64(m)
					sum += float64(d * d)
				}
				k.of[c] += sum
				at += k.space
			}
		}
		for c, sum := range k.of {
			y[c] = T(sum / float64(k.count()))
		}
		return nil
	}
}

// inverse is 1 over the standard deviation of a channel.
func (k normKernel) inverse(variance float64) float64 { return 1 / math.Sqrt(variance+k.epsilon) }

// normalise takes x, scale, bias, mean and variance.
func normalise[T float](k normKernel) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		y, x, scale, bias := data[T](out), data[T](in[0]), data[T](in[1]), data[T](in[2])
		mean, variance := data[T](in[3]), data[T](in[4])
		for c, v := range variance {
			k.of[c] = float64(scale[c]) * k.inverse(float64(v))
		}
		at := 0
		for range k.batch {
			for c, factor := range k.of {
				f, m, b := T(factor), mean[c], bias[c]
				for i, v := range x[at : at+k.space] {
					y[at+i] = T((v-m)*f) + b
				}
				at += k.space
			}
		}
		return nil
	}
}

// scaleGradient takes x, mean, variance and dy.
func scaleGradient[T float](k normKernel) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		x, mean, variance, dy := data[T](in[0]), data[T](in[1]), data[T](in[2]), data[T](in[3])
		clear(k.of)
		at := 0
		for range k.batch {
			for c, m := range mean {
				sum := 0.0
				for i, v := range x[at : at+k.space] {
					sum += float64(float64(v-m) * float64(dy[at+i]))
				}
				k.of[c] += sum
				at += k.space
			}
		}
		for c, sum := range k.of {
			data[T](out)[c] = T(sum * k.inverse(float64(variance[c])))
		}
		return nil
	}
}

// normGradient takes x, scale, mean, variance, dy and the gradients of scale
// and bias. The last two are also the sums through which the batch's mean and
// variance depend on x.
func normGradient[T float](k normKernel) kernel {
	type slope struct{ factor, mean, shift, slope T }
	slopes := make([]slope, k.channels)
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		dx, x, dy := data[T](out), data[T](in[0]), data[T](in[4])
		scale, mean, variance, dScale, dBias := data[T](in[1]), data[T](in[2]), data[T](in[3]), data[T](in[5]), data[T](in[6])
		n := float64(k.count())
		for c := range slopes {
			inverse := k.inverse(float64(variance[c]))
			s := slope{factor: T(float64(scale[c]) * inverse), mean: mean[c]}
			if k.call.Train {
				s.shift, s.slope = T(float64(dBias[c])/n), T(float64(dScale[c])*inverse/n)
			}
			slopes[c] = s
		}
		at := 0
		for range k.batch {
			for _, s := range slopes {
				for i, v := range x[at : at+k.space] {
					dx[at+i] = s.factor * ((dy[at+i] - s.shift) - T((v-s.mean)*s.slope))
				}
				at += k.space
			}
		}
		return nil
	}
}
