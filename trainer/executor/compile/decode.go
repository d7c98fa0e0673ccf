package compile

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var binaryCodes = []string{"+", "-", "⊙", "÷", "^", "<", ">", "<=", ">=", "==", "!="}

var unaryCodes = []string{"abs", "sign", "ceil", "floor", "sin", "cos", "exp", "ln", "log2", "neg", "square", "sqrt",
	"inv", "invSqrt", "cube", "tanh", "sigmoid", "log1p", "expm1", "softplus"}

// decode translates one of Gorgonia's operations. An unknown operation has
// kind Other.
func decode(op gorgonia.Op) (Op, error) {
	name, f, err := fields(op)
	if err != nil || name == "" {
		return Op{}, err
	}
	switch name {
	case "elemBinOp":
		return decodeBinary(op, f)
	case "elemUnaryOp":
		return decodeUnary(op)
	case "linAlgBinOp":
		return decodeProduct(op, f)
	case "repeatOp":
		return Op{Kind: Repeat, Axes: []int{int(f[0].Int())}}, nil
	case "reshapeOp", "Iop":
		return Op{Kind: Alias}, nil
	case "maxOp":
		return Op{Kind: Max, Axes: sorted(ints(f[0]))}, nil
	case "sumOp":
		return Op{Kind: Sum, Axes: sorted(ints(f[0]))}, nil
	case "transposeOp":
		return Op{Kind: Transpose, Axes: ints(f[0])}, nil
	case "concatOp":
		return Op{Kind: Concat, Axes: []int{int(f[0].Int())}}, nil
	case "sliceOp":
		return decodeSlice(op, Slice, f), nil
	case "sliceIncrOp":
		_, inner, err := structFields(f[0].Elem())
		if err != nil || inner == nil {
			return Op{}, err
		}
		return decodeSlice(op, SliceGradient, inner), nil
	}
	return decodeRest(name, f)
}

func decodeRest(name string, f []reflect.Value) (Op, error) {
	switch name {
	case "im2colOp":
		return Op{Kind: Im2Col, Window: window(f)}, nil
	case "col2imOp":
		_, inner, err := structFields(f[4])
		if err != nil || inner == nil {
			return Op{}, err
		}
		return Op{Kind: Col2Im, Window: window(inner)}, nil
	case "softmaxOp":
		return Op{Kind: Softmax, Axes: []int{int(f[1].Int())}, Log: f[2].Bool()}, nil
	case "softmaxDiffOp":
		_, inner, err := structFields(f[0].Elem())
		if err != nil || inner == nil {
			return Op{}, err
		}
		return Op{Kind: SoftmaxGradient, Axes: []int{int(inner[1].Int())}, Log: inner[2].Bool()}, nil
	case "atOp":
		return Op{Kind: At, Axes: ints(f[0])}, nil
	case "minBetween":
		return Op{Kind: MinBetween}, nil
	case "maxBetween":
		return Op{Kind: MaxBetween}, nil
	}
	return Op{}, nil
}

// decodeBinary reads the operator both from its number and from its text. If
// they disagree, this is another version of Gorgonia.
func decodeBinary(op gorgonia.Op, f []reflect.Value) (Op, error) {
	name, inner, err := structFields(f[0].Elem())
	if err != nil {
		return Op{}, err
	}
	if name != "scalarBinOp" && name != "tBinOp" {
		return Op{}, nil
	}
	number, same := inner[0].Uint(), f[3].Bool()
	if number >= uint64(len(binaryCodes)) || fmt.Sprint(op) != fmt.Sprintf("%s %t", binaryCodes[number], same) {
		return Op{}, fmt.Errorf("gorgonia's operator %d calls itself %v: use gorgonia v0.9.18", number, op)
	}
	if number > 4 && !same {
		return Op{}, nil // its result is of bools
	}
	return Op{Kind: Binary, Code: binaryCodes[number]}, nil
}

func decodeUnary(op gorgonia.Op) (Op, error) {
	code := fmt.Sprint(op)
	if !slices.Contains(unaryCodes, code) {
		return Op{}, fmt.Errorf("gorgonia's elementwise operation %q is not known: use gorgonia v0.9.18", code)
	}
	return Op{Kind: Unary, Code: code}, nil
}

func decodeProduct(op gorgonia.Op, f []reflect.Value) (Op, error) {
	kinds := []Kind{MatMul, MatVec, Dot, Outer, BatchedMatMul}
	signs := []string{" × ", " × ", " ⋅ ", " ⊗ ", " ××× "}
	number := f[0].Uint()
	if number >= uint64(len(kinds)) {
		return Op{}, fmt.Errorf("gorgonia's product %d is not known: use gorgonia v0.9.18", number)
	}
	if text := fmt.Sprint(op); !strings.Contains(text, signs[number]) {
		return Op{}, fmt.Errorf("gorgonia's product %d calls itself %q: use gorgonia v0.9.18", number, text)
	}
	return Op{Kind: kinds[number], TransA: f[1].Bool(), TransB: f[2].Bool()}, nil
}

// decodeSlice reads the bounds by the operation's own methods. A nil or empty
// slice means the whole axis to Gorgonia; its step is 0 here.
func decodeSlice(op gorgonia.Op, k Kind, f []reflect.Value) Op {
	o := Op{Kind: k, Axes: []int{int(f[1].Int())}}
	s := op.(interface{ IsSlice() tensor.Slice }).IsSlice()
	if s != nil && s.End() > s.Start() {
		o.Start, o.End, o.Step = s.Start(), s.End(), max(s.Step(), 1)
	}
	return o
}

// window reads kernel, padding, stride and dilation, each height and width.
func window(f []reflect.Value) []int {
	var w []int
	for _, v := range f {
		w = append(w, int(v.Int()))
	}
	return w
}

func sorted(axes []int) []int {
	slices.Sort(axes)
	return slices.Compact(axes)
}
