package rewrite

import (
	"fmt"
	"strings"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/executor/vertex"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// mistakable lists Gorgonia's operations whose hash omits some of their
// fields, by operation name. While a graph is built, Gorgonia takes two
// operations with the same hash for one, even if the omitted fields differ.
// The field advice tells the user what to do instead. The function could
// reports whether a different operation may have the same hash as the given
// one.
var mistakable = map[string]struct {
	advice string
	could  func(*gorgonia.Node) bool
}{
	"sliceOp":     {"use nn.Slice", mistakableSlice},
	"softmaxOp":   {"take one SoftMax, or nn.Softmax and nn.LogSoftmax", always},
	"dropoutOp":   {"use nn.Dropout, which has a name", always},
	"randomOp":    {"use Uniform, Gaussian or Binomial of package nn/ops, which have a name", always},
	"BatchNormOp": {"use nn.BatchNorm, which has a name", always},
	"GroupNormOp": {"take one GroupNorm", always},
	"im2colOp":    {"take one Im2Col or Conv2d, or nn.Conv2D", mistakableWindow},
}

func always(*gorgonia.Node) bool { return true }

// mistakableSlice reports whether another slice of the same value could have
// the same hash. The hash only contains the last byte of each bound.
func mistakableSlice(n *gorgonia.Node) bool {
	s := n.Op().(interface{ IsSlice() tensor.Slice }).IsSlice()
	below, err := vertex.Children(n)
	_, f, too := vertex.Fields(n.Op())
	if s == nil || err != nil || too != nil {
		return err != nil || too != nil
	}
	length := below[0].Shape()[f[1].Int()]
	return length > 256 && (s.Start() > 255 || s.Step() > 1 || s.End()+256 <= length)
}

// mistakableWindow reports whether another Im2Col could have the same hash.
// The hash contains the shape of the result but not the dilation. Usually
// another dilation changes the shape. The shape can stay the same only if the
// kernel is longer than 1 and no longer than the stride.
func mistakableWindow(n *gorgonia.Node) bool {
	_, f, err := vertex.Fields(n.Op())
	if err != nil {
		return true
	}
	at := func(i int) int64 { return f[i].Int() }
	return at(0) > 1 && at(0) <= at(4) || at(1) > 1 && at(1) <= at(5)
}

// check returns an error for an operation that Gorgonia computes wrongly. It
// also returns an error for a vertex that may stand for two different
// operations of the user's program, because Gorgonia took them for equal.
func check(g *gorgonia.ExprGraph, used map[*gorgonia.Node]bool, wanted gorgonia.Nodes) error {
	merged, err := vertex.Merged(g)
	if err != nil {
		return err
	}
	uses := map[*gorgonia.Node]int{}
	for _, n := range wanted {
		uses[n]++
	}
	for n := range used {
		below, err := vertex.Children(n)
		if err != nil {
			return err
		}
		if name, _, _ := vertex.Fields(n.Op()); name == "sizeOp" {
			continue // sizeOp needs only the shape of its input, so it does not count as a use of the input
		}
		for _, b := range below {
			uses[b]++
			if merged[n] {
				uses[b]++
			}
		}
	}
	for _, n := range g.AllNodes() {
		if !used[n] {
			continue
		}
		if err := checkArguments(n); err != nil {
			return err
		}
		if err := mistaken(n, merged[n], uses[n]); err != nil {
			return err
		}
	}
	return nil
}

// mistaken returns an error if vertex n may stand for two operations of the
// program that Gorgonia took for equal. merged is true if the user's program
// created n more than once. uses is the number of vertices that read n.
func mistaken(n *gorgonia.Node, merged bool, uses int) error {
	name, f, err := vertex.Fields(n.Op())
	m, known := mistakable[name]
	switch {
	case err != nil:
		return err
	case n.Op() == nil && merged:
		return fmt.Errorf("%q %v is created more than once: gorgonia merges leaves with the same name and shape, so give each a different name", n.Name(), n.Shape())
	case known && merged && m.could(n):
		return fmt.Errorf("gorgonia's %v of shape %v is created more than once, and gorgonia may have merged two that differ: %s", n.Op(), n.Shape(), m.advice)
	case name == "softmaxOp" && f[2].Bool() && uses > 1:
		return fmt.Errorf("gorgonia's logarithm of a softmax of shape %v has %d uses: Log makes a logarithm of the SoftMax itself, so its other uses are wrong: use nn.Softmax and nn.LogSoftmax", n.Shape(), uses)
	case strings.HasPrefix(name, "constant") && uses > 1 && !plainConstant(n):
		return fmt.Errorf("constant %q of shape %v has %d uses: gorgonia merges constants with the same name, and small ones with the same text: leave out the name of a number, and make a tensor a leaf, with WithName and WithValue", short(n.Name()), n.Shape(), uses)
	}
	return mixedTypes(n, name)
}

// plainConstant reports whether a constant's name contains its whole value.
// Gorgonia compares constants by their names.
func plainConstant(n *gorgonia.Node) bool {
	const written = 8 // up to this number of elements, the text of a tensor shows all of them
	v := n.Value()
	if t, ok := v.(tensor.Tensor); ok {
		return memory.Elements(t.Shape()) <= written && n.Name() == fmt.Sprint(t)
	}
	return n.Name() == fmt.Sprint(v.Data())
}

// mixedTypes returns an error for an operation with operands of two types.
// Gorgonia merges constants with the same text, so that a float32 constant 2
// and a float64 constant 2 become one.
func mixedTypes(n *gorgonia.Node, name string) error {
	if name != "elemBinOp" {
		return nil
	}
	below, err := vertex.Children(n)
	if err != nil {
		return err
	}
	if a, b := below[0].Dtype(), below[1].Dtype(); a != b {
		return fmt.Errorf("gorgonia's %v has operands of %v and %v: gorgonia merges constants with the same text, even if their types differ: make one of them a leaf, with WithName and WithValue", n.Op(), a, b)
	}
	return nil
}

// short returns the first line of a text, cut to 40 characters, for an error
// message.
func short(text string) string {
	text, _, more := strings.Cut(text, "\n")
	if r := []rune(text); len(r) > 40 || more {
		return string(r[:min(len(r), 40)]) + "..."
	}
	return text
}
