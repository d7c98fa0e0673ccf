package rewrite

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/plx-run/plx/trainer/executor/vertex"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// refused maps Gorgonia's operations that compute wrong results in some or all
// cases to checks. A check returns what is wrong with operation o and what to
// use instead, or "" if nothing is wrong.
var refused = map[string]func(o call) string{
	"atOp":        refusedAt,
	"sliceOp":     refusedSlice,
	"sumOp":       refusedReduction,
	"maxOp":       refusedReduction,
	"softmaxOp":   refusedSoftMax,
	"sparsemaxOp": refusedSparsemax,
	"concatOp":    refusedConcat,
	"elemUnaryOp": refusedLogSumExp,
	"elemBinOp":   refusedNorm,
	"maxPoolOp":   refusedMaxPool,
	"tensordotOp": refusedTensordot,
	"diagFlatOp":  func(call) string { return "its type is wrong: multiply by an input that is an identity matrix" },
	"yoloOp":      func(call) string { return "it is not compared with anything: compute the boxes outside the graph" },
}

// checkArguments returns an error if Gorgonia computes the operation of n
// wrongly, or if one of its indices or axes is out of range.
func checkArguments(n *gorgonia.Node) error {
	if slices.Contains(n.Shape(), 0) {
		return fmt.Errorf("%q of shape %v is empty: want at least one element", n.Name(), n.Shape())
	}
	name, f, err := vertex.Fields(n.Op())
	if err != nil || refused[name] == nil {
		return err
	}
	below, err := vertex.Children(n)
	if err != nil {
		return err
	}
	if why := refused[name](call{n, f, below}); why != "" {
		return fmt.Errorf("gorgonia's %v of a value of shape %v: %s", strings.TrimSuffix(fmt.Sprint(n.Op()), " false"), below[0].Shape(), why)
	}
	return nil
}

func refusedAt(o call) string {
	at, s := vertex.Ints(o.f[0]), o.in[0].Shape()
	inside := len(at) == len(s)
	for i := range min(len(at), len(s)) {
		inside = inside && at[i] >= 0 && at[i] < s[i]
	}
	if inside {
		return ""
	}
	return fmt.Sprintf("there is no element %v", at)
}

func refusedSlice(o call) string {
	s := o.n.Op().(interface{ IsSlice() tensor.Slice }).IsSlice()
	if n := o.in[0].Shape()[o.f[1].Int()]; s != nil && (s.Start() < 0 || s.End() > n) {
		return fmt.Sprintf("the axis has %d elements", n)
	}
	return ""
}

func refusedReduction(o call) string {
	axes := vertex.Ints(o.f[0])
	slices.Sort(axes)
	if len(slices.Compact(slices.Clone(axes))) < len(axes) {
		return "an axis is named twice, and a mean would divide by it twice"
	}
	return ""
}

func refusedSoftMax(o call) string {
	s := o.in[0].Shape()
	switch axis := int(o.f[1].Int()); {
	case axis < -1 || axis >= len(s):
		return fmt.Sprintf("there is no axis %d", axis)
	case axis == -1 && len(s) == 2 && s[1] == 1 && s[0] > 1:
		return "without an axis it takes the first one of a column: name the axis"
	}
	return ""
}

func refusedSparsemax(o call) string {
	if axis := int(o.f[0].Int()); axis != -1 && axis != len(o.in[0].Shape())-1 {
		return "it is wrong along another axis than the last: transpose the value"
	}
	return ""
}

func refusedConcat(o call) string {
	if axis := int(o.f[0].Int()); axis < 0 {
		return fmt.Sprintf("there is no axis %d", axis)
	}
	return ""
}

// refusedMaxPool refuses a pool that gorgonia.AveragePool1D may have created,
// because that function creates a max pool by mistake, the same as MaxPool1D.
// A pool with four explicit pads is accepted, because neither function creates
// one.
func refusedMaxPool(o call) string {
	at := func(i int) int64 { return o.f[i].Int() }
	explicit, wide := o.f[10].Bool(), at(5) > 1
	if flat := at(4) == 1 && at(6) == 0 && at(8) == 0 && at(11) == 1; explicit || !wide || !flat {
		return ""
	}
	return "AveragePool1D makes a max pool, as MaxPool1D does, so it is not known which is meant: use AveragePool2D for the mean, or MaxPool2D with four pads for the largest element"
}

func refusedTensordot(o call) string {
	if len(vertex.Ints(o.f[0])) == 1 {
		return ""
	}
	return "its gradient is wrong unless it is along one axis: reshape the operands and use Mul"
}

// refusedLogSumExp refuses gorgonia.LogSumExp, which adds the largest element
// before it takes the logarithm instead of after. It recognises LogSumExp by
// the chain of operations that it consists of.
func refusedLogSumExp(o call) string {
	in, _ := operands(o.n, "ln")
	sum, largest := operands(in, "+ false")
	if largest == nil {
		return ""
	}
	exp, _ := operands(sum, fmt.Sprintf("Σ%v", []int{0}))
	shifted, _ := operands(exp, "exp")
	if _, subtracted := operands(shifted, "- false"); subtracted == nil || subtracted != largest {
		return ""
	}
	return "LogSumExp adds the largest element before it takes the logarithm: add it after, to the logarithm of the sum"
}

// operands returns the first and the last input of n if n's operation prints
// as the string text, and nil otherwise.
func operands(n *gorgonia.Node, text string) (a, b *gorgonia.Node) {
	if n == nil || n.Op() == nil || fmt.Sprint(n.Op()) != text {
		return nil, nil
	}
	below, err := vertex.Children(n)
	if err != nil || len(below) == 0 {
		return nil, nil
	}
	return below[0], below[len(below)-1]
}

// refusedNorm refuses two uses of gorgonia.Norm: with p 0, and with an odd p
// unless the argument is an absolute value. For an odd p Gorgonia forgets to
// take absolute values. refusedNorm recognises Norm by its operations: the sum
// of the elements' powers, to the power of 1/p.
func refusedNorm(o call) string {
	sum, inverse := operands(o.n, "^ false")
	if name, _, err := vertex.Fields(opOf(sum)); err != nil || name != "sumOp" {
		return ""
	}
	below, err := vertex.Children(sum)
	if err != nil {
		return ""
	}
	x, exponent := operands(below[0], "^ false")
	p, q := scalar(exponent), scalar(inverse)
	switch {
	case p == 0 && math.IsInf(q, 1):
		return "Norm of p 0 is infinite: count the elements by Ne"
	case math.Abs(math.Mod(p, 2)) != 1 || math.Abs(p*q-1) > 1e-6:
		return ""
	}
	if a, _ := operands(x, "abs"); a != nil {
		return ""
	}
	return fmt.Sprintf("Norm of p %v takes no absolute values: give it the Abs of the value", p)
}

// opOf returns the operation of a vertex, or nil if n is nil.
func opOf(n *gorgonia.Node) gorgonia.Op {
	if n == nil {
		return nil
	}
	return n.Op()
}

// scalar returns the value of a scalar constant, or NaN for any other vertex.
func scalar(n *gorgonia.Node) float64 {
	if name, _, err := vertex.Fields(opOf(n)); err != nil || name != "constantScalar" {
		return math.NaN()
	}
	switch v := n.Value().Data().(type) {
	case float32:
		return float64(v)
	case float64:
		return v
	}
	return math.NaN()
}
