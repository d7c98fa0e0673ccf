package cpu

import (
	"math"
	"slices"
	"testing"

	"github.com/plx-run/plx/trainer/executor/compile"
	"gorgonia.org/tensor"
)

// ordered is pairs of numbers with equal elements, zeros of both signs,
// infinities and NaN.
var ordered = [][2]float64{{1, 2}, {2, 1}, {2, 2}, {-1, 1}, {0, math.Copysign(0, -1)}, {math.Inf(1), math.Inf(1)},
	{math.Inf(-1), 0}, {math.NaN(), 1}, {1, math.NaN()}, {math.NaN(), math.NaN()}}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Every binary operation gives the same result for two vectors, for a vector
// and a number, and for a number and a vector. The operands include equal
// numbers and NaN.
func TestVectorAndScalarLoopsAgree(t *testing.T) {
	for code, want := range map[string]func(x, y float64) float64{
		"+": func(x, y float64) float64 { return x + y },
		"-": func(x, y float64) float64 { return x - y },
		"⊙": func(x, y float64) float64 { return x * y },
		"÷": func(x, y float64) float64 { return x / y },
		"^": math.Pow,
		"<": func(x, y float64) float64 { return truth(x < y) }, "<=": func(x, y float64) float64 { return truth(x <= y) },
		">": func(x, y float64) float64 { return truth(x > y) }, ">=": func(x, y float64) float64 { return truth(x >= y) },
		"==": func(x, y float64) float64 { return truth(x == y) }, "!=": func(x, y float64) float64 { return truth(x != y) },
	} {
		l := binaryLoops[float64](code)
		for _, p := range ordered {
			x, y := p[0], p[1]
			out := [3][]float64{{-9}, {-9}, {-9}}
			l.vv(out[0], []float64{x}, []float64{y})
			l.vs(out[1], []float64{x}, y)
			l.sv(out[2], x, []float64{y})
			for i, form := range []string{"vectors", "vector and number", "number and vector"} {
				if got, w := out[i][0], want(x, y); got != w && !(got != got && w != w) {
					t.Errorf("%v %s %v of %s is %v, want %v", x, code, y, form, got, w)
				}
			}
		}
	}
}

// The maximum of elements with a NaN is NaN, wherever the NaN is and along
// whichever axis the kernel reduces.
func TestMaximumKeepsNaN(t *testing.T) {
	for at := range 6 {
		a := []float64{1, 2, 3, 4, 5, 6}
		a[at] = math.NaN()
		for _, axes := range [][]int{nil, {0}, {1}} {
			n := map[int]int{0: 1}[len(axes)]
			if len(axes) == 1 {
				n = []int{3, 2}[axes[0]]
			}
			out := &cell[float64]{make([]float64, n)}
			newReduction([]int{2, 3}, axes, false, out, &cell[float64]{a})()
			found := false
			for _, x := range out.data {
				found = found || x != x
			}
			if !found {
				t.Errorf("NaN at %d is lost in the maximum over %v: %v", at, axes, out.data)
			}
		}
	}
}

// A slice with a step takes every step-th row. Its gradient writes the rows
// back with zeros between them.
func TestSliceWithStep(t *testing.T) {
	for _, c := range []struct{ n, start, end, step int }{{7, 0, 7, 2}, {7, 1, 7, 3}, {6, 0, 5, 2}, {5, 2, 3, 4}, {4, 0, 4, 1}} {
		op := compile.Op{Kind: compile.Slice, Axes: []int{0}, Start: c.start, End: c.end, Step: c.step}
		var want, whole []float64
		for i := range c.n {
			whole = append(whole, float64(2*i), float64(2*i+1))
		}
		for i := c.start; i < c.end; i += c.step {
			want = append(want, whole[2*i], whole[2*i+1])
		}
		rows := op.SliceLength(c.n)
		if rows != len(want)/2 {
			t.Errorf("%+v: %d rows, want %d", c, rows, len(want)/2)
			continue
		}
		in := &compile.Value{Shape: tensor.Shape{c.n, 2}}
		part, back := &cell[float64]{make([]float64, 2*rows)}, &cell[float64]{make([]float64, 2*c.n)}
		newSlicing(&compile.Value{Op: op, Inputs: []*compile.Value{in}}, &cell[float64]{whole}, part)()
		op.Kind = compile.SliceGradient
		newSlicing(&compile.Value{Op: op, Shape: in.Shape, Inputs: []*compile.Value{in}}, back, part)()
		for i, x := range part.data {
			if x != want[i] {
				t.Errorf("%+v: element %d is %v, want %v", c, i, x, want[i])
			}
		}
		sum := 0.0
		for i, x := range back.data {
			if sum += x; x != 0 && x != whole[i] {
				t.Errorf("%+v: element %d came back as %v", c, i, x)
			}
		}
		for _, x := range want {
			sum -= x
		}
		if sum != 0 {
			t.Errorf("%+v: %v is lost on the way back", c, -sum)
		}
	}
}

// The sum and the maximum of a scalar are the scalar itself.
func TestReductionOfAScalar(t *testing.T) {
	for _, sum := range []bool{false, true} {
		out := &cell[float64]{make([]float64, 1)}
		newReduction(nil, nil, sum, out, &cell[float64]{[]float64{-3}})()
		if out.data[0] != -3 {
			t.Errorf("sum %v: got %v, want -3", sum, out.data[0])
		}
	}
}

// For every permutation of the dimensions, the transposition moves each
// element to its place and writes nothing after the result.
func TestTransposeInAllOrders(t *testing.T) {
	for _, shape := range [][]int{{2, 3, 4}, {3, 1, 2}, {17, 2, 33}, {1, 5, 4}} {
		n := shape[0] * shape[1] * shape[2]
		in := make([]float64, n)
		for i := range in {
			in[i] = float64(i)
		}
		for _, axes := range [][]int{{0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			if slices.IsSorted(slices.DeleteFunc(slices.Clone(axes), func(x int) bool { return shape[x] == 1 })) {
				continue // this permutation keeps the order, so the compiler makes it an alias and no transposition
			}
			memory := slices.Repeat([]float64{-1}, n+64)
			newPermuting(shape, axes, &cell[float64]{memory[:n:n]}, &cell[float64]{in})()
			for i, got := range memory {
				want := -1.0
				if i < n {
					to := []int{shape[axes[0]], shape[axes[1]], shape[axes[2]]}
					var index [3]int
					index[axes[0]], index[axes[1]], index[axes[2]] = i/(to[1]*to[2]), i/to[2]%to[1], i%to[2]
					want = in[(index[0]*shape[1]+index[1])*shape[2]+index[2]]
				}
				if got != want {
					t.Fatalf("%v in the order %v: element %d is %v, want %v", shape, axes, i, got, want)
				}
			}
		}
	}
}
