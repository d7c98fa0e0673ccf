package growth

import (
	"fmt"
	"reflect"
	"strings"

	"gorgonia.org/gorgonia"
)

// call is an operation in the graph, and how each of its inputs grows with the
// number of rows in the batch.
type call struct {
	n     *gorgonia.Node
	below []*gorgonia.Node
	in    []Growth
	batch int
	f     []reflect.Value // fields of the Gorgonia operation, read by reflection
}

// rules maps the type names of Gorgonia's operations to functions. Each
// function computes how the result of the operation grows with the number of
// rows in the batch.
var rules = map[string]func(call) Growth{
	"elemUnaryOp":         call.unary,
	"elemBinOp":           call.binary,
	"minBetween":          call.same,
	"maxBetween":          call.same,
	"linAlgBinOp":         call.product,
	"tensordotOp":         call.tensordot,
	"sizeOp":              call.size,
	"repeatOp":            call.repeat,
	"sliceOp":             call.slice,
	"atOp":                func(c call) Growth { return Growth{Degree: c.in[0].Degree} },
	"transposeOp":         call.transpose,
	"concatOp":            call.same,
	"reshapeOp":           call.reshape,
	"maxOp":               func(c call) Growth { return c.reduced(0) },
	"sumOp":               func(c call) Growth { return c.reduced(1) },
	"softmaxOp":           call.softmax,
	"sparsemaxOp":         func(c call) Growth { return c.within(c.last()) },
	"byIndicesOp":         call.byIndices,
	"im2colOp":            call.im2col,
	"maxPoolOp":           call.image,
	"avgPoolOp":           call.image,
	"globalAveragePoolOp": call.image,
	"BatchNormOp":         call.image,
	"GroupNormOp":         call.image,
	"dropoutOp":           func(c call) Growth { return c.in[0] },
	"Iop":                 func(c call) Growth { return c.in[0] },
}

// keeping lists the types of operations whose result has the same axes as the
// input, in the same order. Package vertex does not know the fields of these
// types.
var keeping = []string{"*gorgonia.dtConvOp", "*gorgonia.upsampleOp"}

func (g Growth) has(axis int) bool { return axis >= 0 && g.axes>>axis&1 == 1 }

// moved is for an operation that moves an axis of a value. If the rows of the
// batch lie along the old axis (from), moved returns the bit of the new axis
// (to), otherwise 0.
func (g Growth) moved(from, to int) uint64 {
	if !g.has(from) {
		return 0
	}
	return 1 << to
}

func (c call) unknown(why string) Growth {
	return Growth{Why: strings.TrimSuffix(fmt.Sprint(c.n.Op()), " false") + why} // strip the flag " false" that Gorgonia prints after an operation's name
}

// last returns the index of the last axis of the first input.
func (c call) last() int { return len(c.below[0].Shape()) - 1 }

// factors is for functions that multiply the degree of growth by a factor. By
// function: twice that factor. square doubles the degree, so its entry is 4.
// For a function that is not listed, the degree of a growing input becomes
// unknown.
var factors = map[string]int{"neg": 2, "abs": 2, "square": 4, "cube": 6, "inv": -2, "sqrt": 1, "invSqrt": -1}

func (c call) unary() Growth {
	g := c.in[0]
	twice := g.Degree * factors[fmt.Sprint(c.n.Op())]
	if g.Degree != 0 && (twice == 0 || twice%2 != 0) {
		return c.unknown(" of a sum over the rows")
	}
	return Growth{Degree: twice / 2, axes: g.axes}
}

func (c call) binary() Growth {
	a, b, text := c.in[0], c.in[1], fmt.Sprint(c.n.Op())
	switch text {
	case "⊙ false":
		return Growth{Degree: a.Degree + b.Degree, axes: a.axes | b.axes}
	case "÷ false":
		return Growth{Degree: a.Degree - b.Degree, axes: a.axes | b.axes}
	case "+ false", "- false":
		return c.same()
	case "^ false":
		if a.Degree != 0 || b.Degree != 0 {
			return c.unknown(" of a sum over the rows")
		}
	}
	g := c.same()
	g.Degree = 0 // the remaining operations are comparisons, whose results are 0 or 1
	return g
}

// same returns the growth of an operation whose inputs must all have the same
// degree, such as a sum of two values.
func (c call) same() Growth {
	out := c.in[0]
	for _, g := range c.in[1:] {
		if g.Degree != out.Degree {
			return c.unknown(" of a sum over the rows and of a value that does not grow")
		}
		out.axes |= g.axes
	}
	return out
}
