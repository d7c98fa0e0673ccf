package compile

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/plx-run/plx/trainer/executor/vertex"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var binaryCodes = []string{"+", "-", "⊙", "÷", "^", "<", ">", "<=", ">=", "==", "!="}

var unaryCodes = []string{"abs", "sign", "ceil", "floor", "sin", "cos", "exp", "ln", "log2", "neg", "square", "sqrt",
	"inv", "invSqrt", "cube", "tanh", "sigmoid", "log1p", "expm1", "softplus"}

// alongAxes maps names of Gorgonia's operations to kinds. The first field of
// each of these operations is an axis or a list of axes.
var alongAxes = map[string]Kind{
	"repeatOp": Repeat, "concatOp": Concat, "maxOp": Max, "sumOp": Sum, "transposeOp": Transpose, "atOp": At,
}

// gradients lists those gradient operations of Gorgonia that contain their
// forward operation. The number is the index of the field with the forward
// operation.
var gradients = map[string]int{"sliceIncrOp": 0, "softmaxDiffOp": 0, "col2imOp": 4}

// decode translates one of Gorgonia's operations into an Op. The Op has kind
// Other if decode does not know the operation.
func decode(op gorgonia.Op) (Op, error) {
	name, f, err := vertex.Fields(op)
	if err != nil || name == "" {
		return Op{}, err
	}
	if kind, ok := alongAxes[name]; ok {
		o := Op{Kind: kind, Axes: vertex.Ints(f[0])}
		if kind == Max || kind == Sum {
			slices.Sort(o.Axes)
			o = o.along(slices.Compact(o.Axes)...)
		}
		return o, nil
	}
	if i, ok := gradients[name]; ok {
		if _, f, err = vertex.Struct(reflect.Indirect(f[i])); err != nil || f == nil {
			return Op{}, err
		}
	}
	switch name {
	case "elemBinOp":
		return decodeBinary(op, f)
	case "elemUnaryOp":
		return decodeUnary(op)
	case "linAlgBinOp":
		return decodeProduct(op, f)
	case "reshapeOp", "Iop":
		return Op{Kind: Alias}, nil
	case "sliceOp":
		return decodeSlice(op, Slice, f), nil
	case "sliceIncrOp":
		return decodeSlice(op, SliceGradient, f), nil
	case "im2colOp":
		return Op{Kind: Im2Col, Window: window(f)}, nil
	case "col2imOp":
		return Op{Kind: Col2Im, Window: window(f)}, nil
	case "softmaxOp":
		return Op{Kind: Softmax, Axes: vertex.Ints(f[1]), Log: f[2].Bool()}, nil
	case "softmaxDiffOp":
		return Op{Kind: SoftmaxGradient, Axes: vertex.Ints(f[1]), Log: f[2].Bool()}, nil
	case "minBetween":
		return Op{Kind: MinBetween}, nil
	case "maxBetween":
		return Op{Kind: MaxBetween}, nil
	}
	return Op{}, nil
}

// decodeBinary reads the operator both from its number and from its text. A
// contradiction between number and text means another version of Gorgonia,
// which is an error.
func decodeBinary(op gorgonia.Op, f []reflect.Value) (Op, error) {
	name, inner, err := vertex.Struct(f[0].Elem())
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
		return Op{}, nil // a comparison whose result is of type bool, for which there is no kernel
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

// decodeSlice reads start, end and step of a slice by calling the operation's
// own methods. Step 0 in the returned Op means the whole axis, which Gorgonia
// writes as a nil or an empty slice.
func decodeSlice(op gorgonia.Op, k Kind, f []reflect.Value) Op {
	o := Op{Kind: k, Axes: vertex.Ints(f[1])}
	s := op.(interface{ IsSlice() tensor.Slice }).IsSlice()
	if s != nil && s.End() > s.Start() {
		o.Start, o.End, o.Step = s.Start(), s.End(), max(s.Step(), 1)
	}
	return o
}

// window returns 8 numbers: height and width of the kernel, then of the
// padding, the stride and the dilation.
func window(f []reflect.Value) []int {
	var w []int
	for _, v := range f {
		w = append(w, vertex.Ints(v)...)
	}
	return w
}

// plainText returns op's fields as text. It returns false if op has a field
// that could hold state: a pointer, function, map or channel. Numbers,
// strings, slices of numbers and strings, and types hold no state.
func plainText(op gorgonia.Op) (string, bool) {
	v := reflect.ValueOf(op)
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	var b strings.Builder
	ok := writePlain(&b, v, 0)
	return b.String(), ok
}

func writePlain(b *strings.Builder, v reflect.Value, depth int) bool {
	if depth > 8 {
		return false
	}
	switch v.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64, reflect.String:
		fmt.Fprintf(b, "%s(%#v)", v.Type(), v)
		return true
	case reflect.Slice, reflect.Array:
		fmt.Fprintf(b, "%s[%d]", v.Type(), v.Len())
		for i := range v.Len() {
			if !writePlain(b, v.Index(i), depth+1) {
				return false
			}
		}
		return true
	case reflect.Struct:
		fmt.Fprintf(b, "%s/%s{", v.Type().PkgPath(), v.Type())
		for i := range v.NumField() {
			if !writePlain(b, v.Field(i), depth+1) {
				return false
			}
		}
		b.WriteString("}")
		return true
	}
	return writeReference(b, v, depth)
}

// writeReference writes what an interface or a pointer refers to, if this is a
// tensor type or an operation embedded in another. It returns false for any
// other reference, because what it refers to could be state that changes.
func writeReference(b *strings.Builder, v reflect.Value, depth int) bool {
	switch {
	case v.Kind() == reflect.Interface && v.IsNil(), v.Kind() == reflect.Pointer && v.IsNil():
		b.WriteString("nil")
		return true
	case v.Kind() == reflect.Interface:
		return writePlain(b, v.Elem(), depth+1)
	case v.Type().String() == "*reflect.rtype":
		fmt.Fprintf(b, "type %x", v.Pointer())
		return true
	case v.Kind() == reflect.Pointer && v.Type().Elem().PkgPath() == vertex.Package && v.Elem().Kind() == reflect.Struct && embedsOnly(v.Type().Elem()):
		return writePlain(b, v.Elem(), depth+1)
	}
	return false
}

// embedsOnly reports whether t, a struct type of Gorgonia, is an operation.
// Gorgonia's gradient operations point to their forward operation, and such a
// pointer holds no state.
func embedsOnly(t reflect.Type) bool {
	return strings.HasSuffix(t.Name(), "Op") || strings.HasSuffix(t.Name(), "op")
}
