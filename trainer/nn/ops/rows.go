package ops

import (
	"strings"

	"gorgonia.org/gorgonia"
)

// RowEffect describes how the result of an operation depends on the rows of a
// batch. The rows are the first axis of its inputs.
type RowEffect int

// RowsKept: each row of the result depends only on the same row of the inputs.
// RowsOfFirst is the same, but only the first input may have batch rows; the
// others are weights. RowsAveraged and RowsAdded: the result is a mean or a
// sum over the rows, such as a loss. RowsMixed is anything else, such as a
// softmax over the rows.
const (
	RowsKept RowEffect = iota
	RowsOfFirst
	RowsAveraged
	RowsAdded
	RowsMixed
)

// RowsOf returns how the result of an operation depends on the rows of a
// batch. It returns false for an operation that is not of this package.
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
