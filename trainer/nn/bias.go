package nn

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// AddBias adds b (channels) to axis 1 of x, which is (batch, channels) or
// (batch, channels, height, width).
func AddBias(x, b *gorgonia.Node) (*gorgonia.Node, error) {
	l, dtype, err := channelled("add bias", x, b)
	if err != nil {
		return nil, err
	}
	o := &operation{
		what: "add bias",
		out:  operand{dtype: dtype, shape: x.Shape()},
		run:  choose(dtype, addBias[float32], addBias[float64], l),
	}
	o.diff = func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		db, err := sumChannels("gradient of bias", dy)
		return gorgonia.Nodes{dy, db}, err
	}
	return o.apply(x, b)
}

func addBias[T float](l layout) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		y, x, b := data[T](out), data[T](in[0]), data[T](in[1])
		at := 0
		for range l.batch {
			for _, bias := range b {
				for i, v := range x[at : at+l.space] {
					y[at+i] = v + bias
				}
				at += l.space
			}
		}
		return nil
	}
}

// sumChannels is the sum over all but axis 1.
func sumChannels(what string, x *gorgonia.Node) (*gorgonia.Node, error) {
	l, dtype, err := channelled(what, x)
	if err != nil {
		return nil, err
	}
	o := &operation{
		what: what,
		out:  operand{dtype: dtype, shape: tensor.Shape{l.channels}},
		run:  choose(dtype, channelSums[float32], channelSums[float64], newSums(l)),
	}
	return o.apply(x)
}

// sums has scratch for one number for each channel, in float64.
type sums struct {
	layout
	of []float64
}

func newSums(l layout) *sums { return &sums{layout: l, of: make([]float64, l.channels)} }

func channelSums[T float](s *sums) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		x := data[T](in[0])
		clear(s.of)
		at := 0
		for range s.batch {
			for c := range s.of {
				sum := 0.0
				for _, v := range x[at : at+s.space] {
					sum += float64(v)
				}
				s.of[c] += sum
				at += s.space
			}
		}
		for c, v := range s.of {
			data[T](out)[c] = T(v)
		}
		return nil
	}
}
