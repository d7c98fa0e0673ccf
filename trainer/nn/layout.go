package nn

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// layout is how channels lie in memory: axis 1 of (batch, channels) or of
// (batch, channels, space...).
type layout struct {
	batch, channels, space int
}

// channelled wants x to have channels and each of the others to be a vector
// with one element for each of them.
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
	return layout{batch: s[0], channels: s[1], space: elements(s[2:])}, dtype, nil
}

// count is the number of elements of each channel.
func (l layout) count() int { return l.batch * l.space }
