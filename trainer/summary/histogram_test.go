package summary

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The histogram in the file must count every finite element in the bucket to
// which its bounds assign it, including the smallest and the largest element.
func TestHistogramCountsEveryFiniteElement(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for name, values := range map[string][]float64{
		"spread": {-3, -1, 0, 0, 0.5, 2, 2, 7}, "one": {4}, "equal": {2, 2, 2}, "none": {}, "not finite": {nan, inf, -inf},
		"partly finite": {nan, 1, inf, 2}, "huge": {-math.MaxFloat64, math.MaxFloat64}, "tiny": {1, math.Nextafter(1, 2)}, "zeros": {0, 0},
	} {
		w := mustOpen(t, t.TempDir(), time.Now)
		if err := errors.Join(w.Step(Scalars{Step: 9, Histograms: []Histogram{NewHistogram("variables/"+name, values)}}), w.Close()); err != nil {
			t.Fatal(err)
		}
		events, _ := contents(t, w)
		got, ok := events[len(events)-1].histograms["variables/"+name]
		if !ok {
			t.Fatalf("%s: no histogram in %+v", name, events)
		}
		numbers, bounds, counts := got[0], got[1], got[2]
		finite := slices.DeleteFunc(slices.Clone(values), func(x float64) bool { return x-x != 0 })
		if len(finite) == 0 {
			if fmt.Sprint(got) != "[[0 0 0 0 0] [] []]" {
				t.Errorf("%s: %v", name, got)
			}
			continue
		}
		sum, squares := 0.0, 0.0
		for _, x := range finite {
			sum, squares = sum+x, squares+x*x
		}
		if want := []float64{slices.Min(finite), slices.Max(finite), float64(len(finite)), sum, squares}; !slices.Equal(numbers, want) {
			t.Errorf("%s: %v, want %v", name, numbers, want)
		}
		if len(bounds) != len(counts) || !slices.IsSorted(bounds) || bounds[len(bounds)-1] < slices.Max(finite) {
			t.Errorf("%s: bounds %v, counts %v", name, bounds, counts)
		}
		below := 0.0
		for i, n := range counts {
			below += n
			if want := count(finite, bounds[i]); below != want {
				t.Errorf("%s: %v elements up to %v, want %v", name, below, bounds[i], want)
			}
		}
	}
}

// count returns the number of values that are at most bound.
func count(values []float64, bound float64) (n float64) {
	for _, x := range values {
		if x <= bound {
			n++
		}
	}
	return n
}

// A histogram of a large tensor must examine at most mostElements elements.
func TestHistogramSamplesLargeTensors(t *testing.T) {
	values := make([]float32, 3*mostElements+1)
	values[0], values[len(values)-1] = -1, 1
	h := NewHistogram("w", values)
	if h.Number > mostElements || h.Number < mostElements/2 || h.Least != -1 || len(h.Counts) > buckets {
		t.Errorf("%v elements in %d buckets from %v", h.Number, len(h.Counts), h.Least)
	}
}

// The graph in the event file must have all nodes with their operands, shapes
// and types.
func TestGraphHasOperandsShapesAndTypes(t *testing.T) {
	w := mustOpen(t, t.TempDir(), time.Now)
	nodes := []Node{
		{Name: "x", Op: "input", Shape: []int{4, 784}, Dtype: "float32"},
		{Name: "hidden/w", Op: "variable", Shape: []int{784, 10}, Dtype: "float64"},
		{Name: "loss\xff", Op: "A × B", Inputs: []string{"x", "hidden/w"}, Dtype: "bool"},
	}
	if err := w.Graph(nodes); err != nil {
		t.Fatal(err)
	}
	events, lines := contents(t, w)
	if len(events) != 2 || len(lines) != 0 {
		t.Fatalf("%d events, %d lines", len(events), len(lines))
	}
	var got []string
	err := fieldsOf(events[1].graph, func(number, _, _ uint64, data []byte) error {
		if number == 4 {
			got = append(got, fmt.Sprint("version ", data))
			return nil
		}
		text, err := decodeNode(data)
		got = append(got, text)
		return err
	})
	want := []string{"x = input [4 784] type 1", "hidden/w = variable [784 10] type 2", "loss\ufffd = A × B(x,hidden/w) []", "version [8 22]"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if err := w.Graph(make([]Node, MostNodes+1)); err == nil || !strings.Contains(err.Error(), "the graph has 20001 nodes") {
		t.Errorf("a large graph: %v", err)
	}
	if err := errors.Join(w.Step(sample), w.Close()); err != nil {
		t.Errorf("after a graph that was refused: %v", err)
	}
	if err := w.Graph(nodes); !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), filepath.Base(w.events.path)) {
		t.Errorf("closed: %v", err)
	}
}

// decodeNode decodes a NodeDef and returns it as text.
func decodeNode(b []byte) (string, error) {
	var name, op string
	var inputs []string
	shape, dtype := []uint64{}, ""
	err := fieldsOf(b, func(number, wire, n uint64, data []byte) error {
		switch number {
		case 1:
			name = string(data)
		case 2:
			op = string(data)
		case 3:
			inputs = append(inputs, string(data))
		case 5:
			var key string
			return fieldsOf(data, func(number, _, _ uint64, data []byte) error {
				switch {
				case number == 1:
					key = string(data)
				case key == "dtype":
					return fieldsOf(data, func(number, _, n uint64, _ []byte) error { dtype = fmt.Sprintf(" type %d", n); return nil })
				case key == "_output_shapes":
					shape = append(shape, sizes(data)...)
				}
				return nil
			})
		default:
			return fmt.Errorf("node: field %d of wire type %d", number, wire)
		}
		return nil
	})
	if inputs != nil {
		op += "(" + strings.Join(inputs, ",") + ")"
	}
	return fmt.Sprintf("%s = %s %v%s", name, op, shape, dtype), err
}

// sizes returns the dimensions in an encoded list with one shape. The path of
// field numbers is list 1, shape 7, dim 2, size 1.
func sizes(b []byte) (all []uint64) {
	down := []uint64{1, 7, 2}
	var walk func(b []byte, depth int)
	walk = func(b []byte, depth int) {
		fieldsOf(b, func(number, _, n uint64, data []byte) error { // an error is ignored, because the caller then misses the sizes
			switch {
			case depth < len(down) && number == down[depth]:
				walk(data, depth+1)
			case depth == len(down) && number == 1:
				all = append(all, n)
			}
			return nil
		})
	}
	walk(b, 0)
	return all
}

// The loss and the metrics of an evaluation must have the same names as those
// of a training step.
func TestEvaluationUsesNamesOfSteps(t *testing.T) {
	w := mustOpen(t, t.TempDir(), time.Now)
	if err := errors.Join(w.Evaluation(Evaluation{Step: 30, Loss: 0.5, Metrics: map[string]float64{"accuracy": 0.75}}), w.Close()); err != nil {
		t.Fatal(err)
	}
	events, lines := contents(t, w)
	last := events[len(events)-1]
	if last.step != 30 || fmt.Sprint(last.values) != "map[loss:0.5 metrics/accuracy:0.75]" {
		t.Errorf("%+v", last)
	}
	if len(lines) != 1 || lines[0].Step != 30 || fmt.Sprint(lines[0].Values) != "map[loss:0.5 metrics/accuracy:0.75]" {
		t.Errorf("%+v", lines)
	}
}
