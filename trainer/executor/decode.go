package executor

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

// decode translates one of Gorgonia's operations. What it does not know has
// kindOther.
func decode(op gorgonia.Op) (operation, error) {
	name, f, err := fields(op)
	if err != nil || name == "" {
		return operation{}, err
	}
	switch name {
	case "elemBinOp":
		return decodeBinary(op, f)
	case "elemUnaryOp":
		return decodeUnary(op)
	case "linAlgBinOp":
		return decodeProduct(op, f)
	case "repeatOp":
		return operation{kind: kindRepeat, axes: []int{int(f[0].Int())}}, nil
	case "reshapeOp", "Iop":
		return operation{kind: kindAlias}, nil
	case "maxOp":
		return operation{kind: kindMax, axes: sorted(ints(f[0]))}, nil
	case "sumOp":
		return operation{kind: kindSum, axes: sorted(ints(f[0]))}, nil
	case "transposeOp":
		return operation{kind: kindTranspose, axes: ints(f[0])}, nil
	case "concatOp":
		return operation{kind: kindConcat, axes: []int{int(f[0].Int())}}, nil
	case "sliceOp":
		return decodeSlice(op, kindSlice, f), nil
	case "sliceIncrOp":
		_, inner, err := structFields(f[0].Elem())
		if err != nil || inner == nil {
			return operation{}, err
		}
		return decodeSlice(op, kindSliceIncr, inner), nil
	}
	return decodeRest(name, f)
}

func decodeRest(name string, f []reflect.Value) (operation, error) {
	switch name {
	case "im2colOp":
		return operation{kind: kindIm2Col, window: window(f)}, nil
	case "col2imOp":
		_, inner, err := structFields(f[4])
		if err != nil || inner == nil {
			return operation{}, err
		}
		return operation{kind: kindCol2Im, window: window(inner)}, nil
	case "softmaxOp":
		return operation{kind: kindSoftMax, axes: []int{int(f[1].Int())}, log: f[2].Bool()}, nil
	case "softmaxDiffOp":
		_, inner, err := structFields(f[0].Elem())
		if err != nil || inner == nil {
			return operation{}, err
		}
		return operation{kind: kindSoftMaxDiff, axes: []int{int(inner[1].Int())}, log: inner[2].Bool()}, nil
	case "atOp":
		return operation{kind: kindAt, axes: ints(f[0])}, nil
	case "minBetween":
		return operation{kind: kindMinBetween}, nil
	case "maxBetween":
		return operation{kind: kindMaxBetween}, nil
	}
	return operation{}, nil
}

// decodeBinary reads the operator both from its number and from its text:
// where they do not agree this is not the Gorgonia that is known here.
func decodeBinary(op gorgonia.Op, f []reflect.Value) (operation, error) {
	name, inner, err := structFields(f[0].Elem())
	if err != nil {
		return operation{}, err
	}
	if name != "scalarBinOp" && name != "tBinOp" {
		return operation{}, nil
	}
	number, same := inner[0].Uint(), f[3].Bool()
	if number >= uint64(len(binaryCodes)) || fmt.Sprint(op) != fmt.Sprintf("%s %t", binaryCodes[number], same) {
		return operation{}, fmt.Errorf("gorgonia's operator %d calls itself %v: use gorgonia v0.9.18", number, op)
	}
	if number > 4 && !same {
		return operation{}, nil // its result is of bools
	}
	return operation{kind: kindBinary, code: binaryCodes[number]}, nil
}

func decodeUnary(op gorgonia.Op) (operation, error) {
	code := fmt.Sprint(op)
	if !slices.Contains(unaryCodes, code) {
		return operation{}, fmt.Errorf("gorgonia's elementwise operation %q is not known: use gorgonia v0.9.18", code)
	}
	return operation{kind: kindUnary, code: code}, nil
}

func decodeProduct(op gorgonia.Op, f []reflect.Value) (operation, error) {
	kinds := []kind{kindMatMul, kindMatVec, kindDot, kindOuter, kindBatchedMatMul}
	signs := []string{" × ", " × ", " ⋅ ", " ⊗ ", " ××× "}
	number := f[0].Uint()
	if number >= uint64(len(kinds)) {
		return operation{}, fmt.Errorf("gorgonia's product %d is not known: use gorgonia v0.9.18", number)
	}
	if text := fmt.Sprint(op); !strings.Contains(text, signs[number]) {
		return operation{}, fmt.Errorf("gorgonia's product %d calls itself %q: use gorgonia v0.9.18", number, text)
	}
	return operation{kind: kinds[number], transA: f[1].Bool(), transB: f[2].Bool()}, nil
}

// decodeSlice reads the bounds by the operation's own methods. A slice that
// is nil or empty is Gorgonia's way to say all; its step is 0 here.
func decodeSlice(op gorgonia.Op, k kind, f []reflect.Value) operation {
	o := operation{kind: k, axes: []int{int(f[1].Int())}}
	s := op.(interface{ IsSlice() tensor.Slice }).IsSlice()
	if s != nil && s.End() > s.Start() {
		o.start, o.end, o.step = s.Start(), s.End(), max(s.Step(), 1)
	}
	return o
}

// window is kernel, padding, stride and dilation, each height and width.
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
