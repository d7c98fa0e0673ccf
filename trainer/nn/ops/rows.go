package ops

import (
	"strings"

	"gorgonia.org/gorgonia"
)

// RowEffect is what an operation makes of the rows of a batch, which its inputs have on their
// first axis.
type RowEffect int

// Most operations keep the rows. Of some only the first input may have them, since the others
// are weights. A loss averages or adds the rows. RowsMixed stands for anything else, such as a
// softmax over the rows.
const (
	RowsKept RowEffect = iota
	RowsOfFirst
	RowsAveraged
	RowsAdded
	RowsMixed
)

// RowsOf reports what an operation makes of the rows. It reports false for an operation that
// is not of this package.
func RowsOf(o gorgonia.Op) (RowEffect, bool) {
	if c, ok := o.(*contextual); ok {
		o = c.op
	}
	own, ok := o.(*op)
	if !ok {
		return 0, false
	}
	switch {
	case own.what == summed:
		return RowsAdded, true
	case strings.HasSuffix(own.what, "softmax") && len(own.out.shape) < 2,
		strings.HasPrefix(own.what, "gradient of "):
		return RowsMixed, true
	case len(own.out.shape) == 0:
		return RowsAveraged, true
	}
	return own.rows, true
}
