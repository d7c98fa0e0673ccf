package rewrite

import (
	"fmt"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/replica"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// plus returns a function that adds the results of functions a and b of the
// same x.
func plus(a, b build) build {
	return func(x *gorgonia.Node) (*gorgonia.Node, error) {
		p, err := a(x)
		if err != nil {
			return nil, err
		}
		q, err := b(x)
		if err != nil {
			return nil, err
		}
		return gorgonia.Add(p, q)
	}
}

// columns returns a function that slices columns out of x.
func columns(bounds ...int) build {
	return func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return gorgonia.Slice(x, nil, gorgonia.S(bounds[0], bounds[1:]...))
	}
}

func softMax(axis int) build {
	return func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.SoftMax(x, axis) }
}

func logSoftMax(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.LogSoftMax(x, 1) }

func logOf(f build) build {
	return func(x *gorgonia.Node) (*gorgonia.Node, error) { return then(x, f, gorgonia.Log) }
}

func unfolded(kernel, stride, dilation int) build {
	return func(x *gorgonia.Node) (*gorgonia.Node, error) {
		image, err := gorgonia.Reshape(x, tensor.Shape{1, 1, 9, 900})
		if err != nil {
			return nil, err
		}
		return gorgonia.Im2Col(image, tensor.Shape{1, kernel}, tensor.Shape{0, 0}, tensor.Shape{1, stride}, tensor.Shape{1, dilation})
	}
}

// addConstant returns a function that adds the constant v to x. The constant
// gets that name, unless it is empty.
func addConstant(v any, name string) build {
	return func(x *gorgonia.Node) (*gorgonia.Node, error) {
		c := gorgonia.NewConstant(v)
		if name != "" {
			c = gorgonia.NewConstant(v, gorgonia.WithName(name))
		}
		return gorgonia.Add(x, c)
	}
}

func addLeaf(v float64) build {
	return func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Add(x, filled(x, "leaf", v)) }
}

// draw returns a function that adds random numbers of a distribution to x.
func draw(f func(g *gorgonia.ExprGraph, dt tensor.Dtype, a, b float64, shape ...int) *gorgonia.Node) build {
	return func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return gorgonia.Add(x, f(x.Graph(), x.Dtype(), 0, 1, x.Shape()...))
	}
}

func dropped(p float64) build {
	return func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Dropout(x, p) }
}

func groupNormed(epsilon float64) build {
	return func(x *gorgonia.Node) (*gorgonia.Node, error) {
		image, err := gorgonia.Reshape(x, tensor.Shape{1, 3, 3, 900})
		if err != nil {
			return nil, err
		}
		one, zero := filled(image, fmt.Sprint("one", epsilon), 1), filled(image, fmt.Sprint("zero", epsilon), 0)
		return gorgonia.GroupNorm(image, one, zero, 3, 3, epsilon)
	}
}

// Gorgonia makes one vertex of two that have the same hash. plx notices that a
// vertex was created twice, and returns an error if the two may differ.
func TestAmbiguousMergedVerticesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		want string
		f    build
	}{
		"slices":          {"use nn.Slice", plus(columns(0, 256), columns(256, 512))},
		"slices of one":   {"use nn.Slice", plus(columns(3), columns(259))},
		"slices by steps": {"use nn.Slice", plus(columns(0, 3, 1), columns(0, 771, 257))},
		"softmaxes":       {"nn.LogSoftmax", plus(softMax(1), logSoftMax)},
		"log of a softmax": {"its other uses are wrong", func(x *gorgonia.Node) (*gorgonia.Node, error) {
			p, err := gorgonia.SoftMax(x, 1)
			if err != nil {
				return nil, err
			}
			return plus(gorgonia.Tanh, gorgonia.Log)(p)
		}},
		"windows":            {"nn.Conv2D", plus(unfolded(2, 3, 1), unfolded(2, 3, 2))},
		"dropouts":           {"use nn.Dropout", plus(dropped(0.5), dropped(0.1))},
		"random tensors":     {"which have a name", plus(draw(gorgonia.UniformRandomNode), draw(gorgonia.GaussianRandomNode))},
		"group norms":        {"take one GroupNorm", plus(groupNormed(1e-3), groupNormed(1))},
		"leaves":             {`"leaf" (9, 900) is created more than once`, plus(addLeaf(1), addLeaf(2))},
		"large constants":    {"make a tensor a leaf", plus(addConstant(large(1), ""), addConstant(large(2), ""))},
		"named constants":    {`constant "c" of shape () has 2 uses`, plus(addConstant(2.0, "c"), addConstant(3.0, "c"))},
		"numbers of 2 types": {"operands of float64 and float32", plus(squeezed, addConstant(2.0, ""))},
	} {
		if err := modelOf(t, c.f); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// large returns a tensor with the number middle at a place that the tensor's
// text leaves out.
func large(middle float64) *tensor.Dense {
	t := tensor.New(tensor.WithShape(9, 900), tensor.WithBacking(make([]float64, 8100)))
	t.Data().([]float64)[4000] = middle
	return t
}

// squeezed adds a number of another type than that of x, and converts the sum.
func squeezed(x *gorgonia.Node) (*gorgonia.Node, error) {
	small, err := gorgonia.ConvType(x, tensor.Float64, tensor.Float32)
	if err != nil {
		return nil, err
	}
	small, err = gorgonia.Add(small, gorgonia.NewConstant(float32(2)))
	if err != nil {
		return nil, err
	}
	return gorgonia.ConvType(small, tensor.Float32, tensor.Float64)
}

func TestHarmlessMergedVerticesAreAccepted(t *testing.T) {
	for name, f := range map[string]build{
		"other slices":          plus(columns(0, 256), columns(1, 257)),
		"a slice at the end":    plus(columns(100, 800), columns(100, 800)),
		"one slice":             columns(256, 512),
		"a softmax twice":       plus(softMax(1), softMax(0)),
		"a logarithm":           logOf(softMax(1)),
		"the same window":       plus(unfolded(3, 2, 1), unfolded(3, 2, 1)),
		"numbers":               plus(addConstant(2.0, ""), addConstant(2.0, "")),
		"small constants":       plus(addConstant(small(1), ""), addConstant(small(1), "")),
		"a large constant":      addConstant(large(1), ""),
		"what is alike":         plus(gorgonia.Tanh, gorgonia.Tanh),
		"an operand two times":  func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.HadamardProd(x, x) },
		"dropouts of two nodes": func(x *gorgonia.Node) (*gorgonia.Node, error) { return then(x, dropped(0.5), dropped(0.5)) },
	} {
		if err := modelOf(t, f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func small(v float64) *tensor.Dense { return tensor.New(tensor.FromScalar(v)) }

func modelOf(t *testing.T, f build) error {
	t.Helper()
	x := gorgonia.NewMatrix(gorgonia.NewGraph(), tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(9, 900))
	y, err := f(x)
	must(t, err)
	loss, err := gorgonia.Mean(y)
	must(t, err)
	_, err = Model(replica.Model{Inputs: gorgonia.Nodes{x}, Loss: loss}, true)
	return err
}
