package compile

import (
	"fmt"
	"reflect"
	"strings"

	"gorgonia.org/gorgonia"
)

const gorgoniaPath = "gorgonia.org/gorgonia"

// layouts are the fields of Gorgonia's operations in v0.9.18, in their order.
// Gorgonia does not export them, so this package reads them by reflection, and
// only if they are exactly these.
var layouts = map[string]string{
	"elemBinOp":      "ʘBinaryOperator arg0 arg1 retSame",
	"scalarBinOp":    "ʘBinaryOperatorType t",
	"tBinOp":         "ʘBinaryOperatorType tensorLeft",
	"elemUnaryOp":    "ʘUnaryOperator argTensor numericResult",
	"linAlgBinOp":    "āBinaryOperator transA transB",
	"sizeOp":         "axis d val",
	"repeatOp":       "along inputShape",
	"sliceOp":        "Slice along a d",
	"sliceIncrOp":    "sliceOp",
	"transposeOp":    "pattern d",
	"concatOp":       "axis d children",
	"reshapeOp":      "from to",
	"maxOp":          "along d",
	"sumOp":          "along d inputShape",
	"im2colOp":       "h w padH padW strideH strideW dilationH dilationW",
	"col2imOp":       "unpaddedB unpaddedC unpaddedH unpaddedW im2colOp",
	"softmaxOp":      "shape axis isLog",
	"softmaxDiffOp":  "softmaxOp",
	"atOp":           "coordinates d",
	"constantScalar": "v",
	"constantTensor": "v",
	"minBetween":     "",
	"maxBetween":     "",
	"Iop":            "",
}

// fields reads the fields of one of Gorgonia's operations. It returns an empty
// name for an operation that is not in layouts. A layout other than the known
// one is an error.
func fields(op any) (name string, f []reflect.Value, err error) {
	v := reflect.ValueOf(op)
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return structFields(v)
}

func structFields(v reflect.Value) (name string, f []reflect.Value, err error) {
	if v.Kind() != reflect.Struct || v.Type().PkgPath() != gorgoniaPath {
		return "", nil, nil
	}
	want, ok := layouts[v.Type().Name()]
	if !ok {
		return "", nil, nil
	}
	var names []string
	for i := range v.NumField() {
		names = append(names, v.Type().Field(i).Name)
		f = append(f, v.Field(i))
	}
	if got := strings.Join(names, " "); got != want {
		return "", nil, fmt.Errorf("gorgonia.%s has the fields %q, this program knows %q: use gorgonia v0.9.18", v.Type().Name(), got, want)
	}
	return v.Type().Name(), f, nil
}

// ints reads a slice of integers.
func ints(v reflect.Value) []int {
	out := make([]int, v.Len())
	for i := range out {
		out[i] = int(v.Index(i).Int())
	}
	return out
}

// children are the inputs of a vertex. The graph's own method From uses an
// index that is wrong after Gorgonia has removed vertices.
func children(n *gorgonia.Node) ([]*gorgonia.Node, error) {
	f := reflect.ValueOf(n).Elem().FieldByName("children")
	if !f.IsValid() || f.Type() != reflect.TypeFor[gorgonia.Nodes]() {
		return nil, fmt.Errorf("gorgonia.Node has no field children of the known type: use gorgonia v0.9.18")
	}
	out := make([]*gorgonia.Node, f.Len())
	for i := range out {
		out[i] = (*gorgonia.Node)(f.Index(i).UnsafePointer())
	}
	return out, nil
}

// plainText returns op's fields as text. It reports false if op has a field
// that could hold state: a pointer, function, map or channel. Numbers, strings,
// slices of them and types inside an interface hold none.
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

// writeReference follows interfaces, types of package tensor and embedded
// operations.
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
	case v.Kind() == reflect.Pointer && v.Type().Elem().PkgPath() == gorgoniaPath && v.Elem().Kind() == reflect.Struct && embedsOnly(v.Type().Elem()):
		return writePlain(b, v.Elem(), depth+1)
	}
	return false
}

// embedsOnly reports whether a structure of Gorgonia's is an operation. The
// operation's derivatives may point to it.
func embedsOnly(t reflect.Type) bool {
	return strings.HasSuffix(t.Name(), "Op") || strings.HasSuffix(t.Name(), "op")
}
