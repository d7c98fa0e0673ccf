// Package vertex reads the fields of Gorgonia's operations and the inputs of a
// graph's vertices, which Gorgonia does not export.
//
//	name, f, err := vertex.Fields(n.Op()) // "transposeOp", its pattern, ...
//	inputs, err := vertex.Children(n)
//
// It reads by reflection and changes nothing. It returns an error if a
// structure is not the same as in Gorgonia v0.9.18.
package vertex

import (
	"fmt"
	"reflect"
	"strings"

	"gorgonia.org/gorgonia"
)

// Package is the import path of Gorgonia.
const Package = "gorgonia.org/gorgonia"

const pool = "unpaddedB unpaddedC unpaddedH unpaddedW h w padNorth padWest padSouth padEast explicitPadding strideH strideW mask"

// layouts lists the field names of each of Gorgonia v0.9.18's operations, in
// their order. Gorgonia does not export the fields. This package reads them by
// reflection, and refuses a structure that has other fields.
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
	"sparsemaxOp":    "axis",
	"tensordotOp":    "aAxes bAxes aDims bDims retDims",
	"atOp":           "coordinates d",
	"constantScalar": "v",
	"constantTensor": "v",
	"minBetween":     "",
	"maxBetween":     "",
	"byIndicesOp":    "axis",
	"dropoutOp":      "probability isTraining rndGen",
	"randomOp":       "which shape dt a b",
	"maxPoolOp":      pool,
	"avgPoolOp":      pool,
	"BatchNormOp":    "momentum epsilon dims runningMean runningVariance saveMean saveVariance alpha beta training",
	"GroupNormOp":    "numGroups numChannels epsilon mean rstd",
	"Iop":            "",

	// package compile refuses these operations, so only their names are needed
	"globalAveragePoolOp": "",
	"diagFlatOp":          "",
	"yoloOp":              "anchors masks ignoreTresh dimensions numClasses trainMode",
}

// Fields returns the name and the fields of one of Gorgonia's operations. The
// name is empty for an operation that layouts does not list. An operation
// whose fields differ from layouts is an error.
func Fields(op any) (name string, f []reflect.Value, err error) {
	v := reflect.ValueOf(op)
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return Struct(v)
}

// Struct returns the name and the fields of an operation that is a field of
// another operation. See Fields.
func Struct(v reflect.Value) (name string, f []reflect.Value, err error) {
	if v.Kind() != reflect.Struct || v.Type().PkgPath() != Package {
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

// Ints returns the integers of a field, which is an integer or a slice of
// integers.
func Ints(v reflect.Value) []int {
	if v.CanInt() {
		return []int{int(v.Int())}
	}
	out := make([]int, v.Len())
	for i := range out {
		out[i] = int(v.Index(i).Int())
	}
	return out
}

// Children returns the inputs of vertex n. It does not use the graph's method
// From, whose index is wrong after Gorgonia has removed vertices.
func Children(n *gorgonia.Node) ([]*gorgonia.Node, error) {
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

// Merged returns the vertices that the user's program created more than once.
// Gorgonia hashes a new vertex and returns an existing vertex with the same
// hash. It adds the edges to the inputs again each time, and Merged looks for
// such repeated edges.
//
// Call Merged before gorgonia.Grad and before drawing the graph: both remove
// the repeated edges.
func Merged(g *gorgonia.ExprGraph) (map[*gorgonia.Node]bool, error) {
	graph := reflect.ValueOf(g).Elem()
	leaves, to := graph.FieldByName("leaves"), graph.FieldByName("to")
	if !leaves.IsValid() || leaves.Type() != reflect.TypeFor[gorgonia.Nodes]() ||
		!to.IsValid() || to.Type() != reflect.TypeFor[map[*gorgonia.Node]gorgonia.Nodes]() {
		return nil, fmt.Errorf("gorgonia.ExprGraph has no fields leaves and to of the known types: use gorgonia v0.9.18")
	}
	merged := map[*gorgonia.Node]bool{}
	for n, times := range tally(leaves) {
		merged[n] = times > 1
	}
	for it := to.MapRange(); it.Next(); {
		child := (*gorgonia.Node)(it.Key().UnsafePointer())
		for n, edges := range tally(it.Value()) {
			inputs, err := Children(n)
			if err != nil {
				return nil, err
			}
			for _, in := range inputs {
				if in == child {
					edges--
				}
			}
			merged[n] = merged[n] || edges > 0
		}
	}
	return merged, nil
}

// tally counts how often each vertex occurs in all, a slice of vertices.
func tally(all reflect.Value) map[*gorgonia.Node]int {
	times := map[*gorgonia.Node]int{}
	for i := range all.Len() {
		times[(*gorgonia.Node)(all.Index(i).UnsafePointer())]++
	}
	return times
}
