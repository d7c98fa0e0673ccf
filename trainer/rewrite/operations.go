package rewrite

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/executor/vertex"
	"github.com/plx-run/plx/trainer/nn/ops"
	"github.com/plx-run/plx/trainer/replica"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// call is one of Gorgonia's operations in a graph: its vertex n, the fields f
// of the operation, and its inputs in the new graph.
type call struct {
	n  *gorgonia.Node
	f  []reflect.Value
	in gorgonia.Nodes
}

// replacements maps the type names of Gorgonia's operations to functions that
// create plx's operation instead.
var replacements = map[string]func(*copier, call) (*gorgonia.Node, error){
	"dropoutOp":   (*copier).dropout,
	"randomOp":    (*copier).random,
	"maxPoolOp":   (*copier).maxPool,
	"avgPoolOp":   (*copier).avgPool,
	"BatchNormOp": (*copier).batchNorm,
	"GroupNormOp": (*copier).groupNorm,
	"byIndicesOp": (*copier).byIndices,
	"concatOp":    (*copier).concat,
	"maxOp":       (*copier).max,
}

// replaceable reports whether Model replaces the operation of n.
func replaceable(n *gorgonia.Node) bool {
	name, f, err := vertex.Fields(n.Op())
	switch {
	case err != nil:
		return replacements[name] != nil // method replace will return the error that Fields returned
	case name == "concatOp":
		return mistakableParts(n, int(f[0].Int()))
	case name == "maxOp":
		return isFloat(n)
	}
	return replacements[name] != nil
}

// isFloat reports whether n is float32 or float64, the types that can have a
// gradient.
func isFloat(n *gorgonia.Node) bool {
	return n.Dtype() == tensor.Float32 || n.Dtype() == tensor.Float64
}

// mistakableParts reports whether Gorgonia's gradient of the concatenation n
// would confuse two parts. The gradient takes a slice for each part. Gorgonia
// confuses two slices of equal length whose starts differ by a multiple of
// 256.
func mistakableParts(n *gorgonia.Node, axis int) bool {
	parts, err := vertex.Children(n)
	at, seen := 0, map[[2]int]bool{}
	for _, p := range parts {
		size := p.Shape()[axis]
		key := [2]int{size, at % 256}
		if seen[key] {
			return err == nil && isFloat(n)
		}
		seen[key] = true
		at += size
	}
	return false
}

func (c *copier) replace(n *gorgonia.Node, inputs gorgonia.Nodes) (*gorgonia.Node, error) {
	name, f, err := vertex.Fields(n.Op())
	if err != nil {
		return nil, err
	}
	made, err := replacements[name](c, call{n, f, inputs})
	if err != nil {
		return nil, fmt.Errorf("gorgonia's %v: %w", n.Op(), err)
	}
	return made, nil
}

func (c *copier) dropout(o call) (*gorgonia.Node, error) {
	name := c.name("Dropout")
	if training := o.f[1].Bool(); !training {
		return o.in[0], nil
	}
	return ops.Dropout(o.in[0], o.f[0].Float(), name)
}

func (c *copier) random(o call) (*gorgonia.Node, error) {
	shape, a, b := vertex.Ints(o.f[1]), o.f[3].Float(), o.f[4].Float()
	switch o.f[0].Uint() {
	case 0:
		return ops.Uniform(c.to, o.n.Dtype(), a, b, c.name("UniformRandomNode"), shape...)
	case 1:
		return ops.Gaussian(c.to, o.n.Dtype(), a, b, c.name("GaussianRandomNode"), shape...)
	case 2:
		return ops.Binomial(c.to, o.n.Dtype(), int(a), b, c.name("BinomialRandomNode"), shape...)
	}
	return nil, fmt.Errorf("its distribution %d is not known: use gorgonia v0.9.18", o.f[0].Uint())
}

func (c *copier) maxPool(o call) (*gorgonia.Node, error) {
	c.name("MaxPool2D")
	down, across, err := walks(o.f)
	if err != nil {
		return nil, err
	}
	return ops.MaxPool(o.in[0], down, across)
}

func (c *copier) avgPool(o call) (*gorgonia.Node, error) {
	c.name("AveragePool2D")
	down, across, err := walks(o.f)
	if err != nil {
		return nil, err
	}
	return ops.AvgPool(o.in[0], down, across)
}

// walks returns the kernel size, stride and padding of a pooling operation,
// first vertical, then horizontal. f holds the fields of Gorgonia's operation.
func walks(f []reflect.Value) (down, across ops.Walk, err error) {
	at := func(i int) int { return int(f[i].Int()) }
	north, west, south, east := at(6), at(7), at(8), at(9)
	if north != south || west != east {
		return down, across, fmt.Errorf("it pads %d, %d, %d and %d rows and columns above, below, left and right: want equal padding on opposite sides", north, south, west, east)
	}
	return ops.Walk{Kernel: at(4), Stride: at(11), Pad: north}, ops.Walk{Kernel: at(5), Stride: at(12), Pad: west}, nil
}

// batchNorm creates plx's batch norm with scale 1 and bias 0, because
// Gorgonia's scale and bias are separate vertices. The running mean and
// variance become states of the model.
func (c *copier) batchNorm(o call) (*gorgonia.Node, error) {
	name, x := c.name("BatchNorm"), o.in[0]
	if training := o.f[9].Bool(); !training {
		return nil, fmt.Errorf("it is set to testing: remove that call, because the trainer decides which runs are evaluations")
	}
	mean, variance, err := c.running(o.n.Op().(*gorgonia.BatchNormOp), name)
	if err != nil {
		return nil, err
	}
	momentum := 1 - o.f[0].Float() // Gorgonia's momentum is the weight of the new value, plx's that of the old one
	vector := func(which string, first gorgonia.InitWFn) *gorgonia.Node {
		return gorgonia.NewVector(c.to, x.Dtype(), gorgonia.WithName(name+which), gorgonia.WithShape(x.Shape()[1]), gorgonia.WithInit(first))
	}
	n, err := ops.BatchNorm(x, vector(".one", gorgonia.Ones()), vector(".zero", gorgonia.Zeroes()), mean, variance, momentum, o.f[1].Float(), name)
	if err != nil {
		return nil, err
	}
	unbiased, err := corrected(n.BatchVariance, memory.Elements(x.Shape())/x.Shape()[1])
	if err != nil {
		return nil, err
	}
	c.states = append(c.states, replica.State{Variable: mean, Batch: n.BatchMean, Momentum: n.Momentum},
		replica.State{Variable: variance, Batch: unbiased, Momentum: n.Momentum})
	return n.Out, nil
}

// running creates the variables of the running mean and variance. They begin
// with the values in Gorgonia's operation. A variance of all zeros, which is
// Gorgonia's initial value, begins with ones instead.
func (c *copier) running(op *gorgonia.BatchNormOp, name string) (mean, variance *gorgonia.Node, err error) {
	var values [2]*tensor.Dense
	values[0], values[1] = dense(op.Stats())
	if values[0] == nil {
		return nil, nil, fmt.Errorf("its running values are no tensors")
	}
	blank := true
	for i := range values[1].Shape().TotalSize() {
		blank = blank && reflect.ValueOf(values[1].Get(i)).Float() == 0
	}
	if blank {
		values[1] = tensor.Ones(values[1].Dtype(), values[1].Shape()...)
	}
	var leaves [2]*gorgonia.Node
	for i, which := range []string{".mean", ".variance"} {
		leaves[i] = gorgonia.NewVector(c.to, values[i].Dtype(), gorgonia.WithName(name+which), gorgonia.WithShape(values[i].Shape()...),
			gorgonia.WithValue(values[i]))
	}
	return leaves[0], leaves[1], nil
}

// dense returns copies of two dense tensors, or nil if one of them is no
// *tensor.Dense.
func dense(a, b tensor.Tensor) (*tensor.Dense, *tensor.Dense) {
	x, ok := a.(*tensor.Dense)
	y, too := b.(*tensor.Dense)
	if !ok || !too {
		return nil, nil
	}
	return x.Clone().(*tensor.Dense), y.Clone().(*tensor.Dense)
}

// corrected multiplies a mean square deviation of n elements by n/(n-1). The
// product is an unbiased estimate of the variance, as in Gorgonia's running
// variance.
func corrected(variance *gorgonia.Node, n int) (*gorgonia.Node, error) {
	if n == 1 {
		return variance, nil // the batch norm of one element is an error in training anyway
	}
	factor := float64(n) / float64(n-1)
	if variance.Dtype() == tensor.Float32 {
		return gorgonia.HadamardProd(variance, gorgonia.NewConstant(float32(factor)))
	}
	return gorgonia.HadamardProd(variance, gorgonia.NewConstant(factor))
}

func (c *copier) groupNorm(o call) (*gorgonia.Node, error) {
	c.name("GroupNorm")
	return ops.GroupNorm(o.in[0], int(o.f[0].Int()), o.f[2].Float())
}

// byIndices creates plx's lookup along an axis. It moves the axis to the
// front, looks up, and moves the axis back. Gorgonia's own gradient is wrong
// if an index occurs twice. Gorgonia also returns 0 for an index out of range,
// except along the first axis.
func (c *copier) byIndices(o call) (*gorgonia.Node, error) {
	c.name("ByIndices")
	axis := int(o.f[0].Int())
	if axis == 0 {
		return rows(o.in[0], o.in[1])
	}
	there, back := []int{axis}, []int{}
	for i := range o.in[0].Shape() {
		if i != axis {
			there = append(there, i)
			back = append(back, len(there)-1)
		}
	}
	table, err := gorgonia.Transpose(o.in[0], there...)
	if err != nil {
		return nil, err
	}
	found, err := rows(table, o.in[1])
	if err != nil {
		return nil, err
	}
	return gorgonia.Transpose(found, slices.Insert(back, axis, 0)...)
}

// rows looks up rows of a table of any number of dimensions, at indices of any
// number of dimensions.
func rows(table, index *gorgonia.Node) (*gorgonia.Node, error) {
	s, n := table.Shape(), memory.Elements(index.Shape())
	shape := append(tensor.Shape{n}, s[1:]...)
	var err error
	if len(index.Shape()) != 1 {
		index, err = gorgonia.Reshape(index, tensor.Shape{n})
	}
	if err == nil && len(s) != 2 {
		table, err = gorgonia.Reshape(table, tensor.Shape{s[0], memory.Elements(s[1:])})
	}
	if err != nil {
		return nil, err
	}
	found, err := ops.Rows(table, index)
	if err == nil && !slices.Equal(found.Shape(), shape) {
		found, err = gorgonia.Reshape(found, shape)
	}
	return found, err
}

func (c *copier) concat(o call) (*gorgonia.Node, error) {
	c.name("Concat")
	return ops.Concat(int(o.f[0].Int()), o.in...)
}

func (c *copier) max(o call) (*gorgonia.Node, error) {
	c.name("Max")
	return ops.Max(o.in[0], vertex.Ints(o.f[0])...)
}
