package nn

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/executor/memory"
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
	o := &op{
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

// sumChannels adds all elements of each channel.
func sumChannels(what string, x *gorgonia.Node) (*gorgonia.Node, error) {
	l, dtype, err := channelled(what, x)
	if err != nil {
		return nil, err
	}
	o := &op{
		what: what,
		out:  operand{dtype: dtype, shape: tensor.Shape{l.channels}},
		run:  choose(dtype, channelSums[float32], channelSums[float64], newSums(l)),
	}
	return o.apply(x)
}

// sums has scratch memory: one float64 for each channel.
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

// layout says how channels lie in memory: axis 1 of (batch, channels) or of
// (batch, channels, space...).
type layout struct {
	batch, channels, space int
}

// channelled checks that x has channels, and that each of the others is a
// vector with one element for each channel.
func channelled(what string, x *gorgonia.Node, others ...*gorgonia.Node) (layout, tensor.Dtype, error) {
	dtype, err := floats(what, append([]*gorgonia.Node{x}, others...)...)
	if err != nil {
		return layout{}, dtype, err
	}
	s := x.Shape()
	if len(s) < 2 {
		return layout{}, dtype, fmt.Errorf("%s: x is %s, want (batch, channels) or (batch, channels, height, width)", what, told(x))
	}
	for _, n := range others {
		if !slices.Equal(n.Shape(), s[1:2]) {
			return layout{}, dtype, fmt.Errorf("%s: x is %s, so %s must be (%d)", what, told(x), told(n), s[1])
		}
	}
	return layout{batch: s[0], channels: s[1], space: memory.Elements(s[2:])}, dtype, nil
}

// count is the number of elements of each channel.
func (l layout) count() int { return l.batch * l.space }
