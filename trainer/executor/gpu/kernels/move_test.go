package kernels_test

import (
	"fmt"
	"testing"

	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// bothTypes runs a check for float32 and for float64.
func bothTypes(t *testing.T, name string, f32, f64 func(t *testing.T)) {
	t.Run(name+" float32", f32)
	t.Run(name+" float64", f64)
}

func TestTransposeMatchesCPU(t *testing.T) {
	for _, c := range []struct{ shape, axes []int }{
		{[]int{1, 7}, []int{1, 0}}, {[]int{31, 33}, []int{1, 0}}, {[]int{64, 32}, []int{1, 0}}, {[]int{257, 5}, []int{1, 0}},
		{[]int{3, 33, 31}, []int{0, 2, 1}}, {[]int{3, 4, 5}, []int{2, 0, 1}}, {[]int{3, 4, 5}, []int{2, 1, 0}}, {[]int{2, 3, 4, 5}, []int{3, 1, 0, 2}},
		{[]int{2, 3, 4, 5}, []int{0, 2, 1, 3}},
	} {
		bothTypes(t, fmt.Sprint(c.shape, c.axes), func(t *testing.T) { checkTranspose[float32](t, c.shape, c.axes) },
			func(t *testing.T) { checkTranspose[float64](t, c.shape, c.axes) })
	}
}

func checkTranspose[T float](t *testing.T, shape, axes []int) {
	x := noise[T](1, size(shape))
	want := onCPU(t, 0, nil, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return gorgonia.Transpose(in[0], axes...) }, of(x, shape...))
	same(t, "transpose", Bound{}, compute(t, len(x), x)(Transpose(number[T](), shape, axes)), want.out)
}

func TestSlicesMatchCPU(t *testing.T) {
	for _, c := range []struct {
		shape                  []int
		axis, start, end, step int
	}{
		{[]int{7}, 0, 2, 5, 1}, {[]int{33, 31}, 0, 3, 30, 1}, {[]int{33, 31}, 1, 3, 30, 1}, {[]int{9, 10, 3}, 1, 1, 9, 2}, {[]int{257, 3}, 0, 0, 257, 1},
	} {
		bothTypes(t, fmt.Sprint(c), func(t *testing.T) { checkSlice[float32](t, c.shape, c.axis, c.start, c.end, c.step) },
			func(t *testing.T) { checkSlice[float64](t, c.shape, c.axis, c.start, c.end, c.step) })
	}
}

func checkSlice[T float](t *testing.T, shape []int, axis, start, end, step int) {
	x := noise[T](2, size(shape))
	part := append([]int(nil), shape...)
	part[axis] = (end - start + step - 1) / step
	dy := noise[T](3, size(part))
	cuts := make([]tensor.Slice, axis+1)
	cuts[axis] = gorgonia.S(start, end, step)
	want := onCPU(t, 1, dy, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return gorgonia.Slice(in[0], cuts...) }, of(x, shape...))
	same(t, "slice", Bound{}, compute(t, len(dy), x)(Slice(number[T](), shape, axis, start, end, step)), want.out)
	same(t, "gradient of slice", Bound{}, compute(t, len(x), dy)(SliceGradient(number[T](), shape, axis, start, end, step)), want.gradients[0])
}

func TestConcatMatchesCPU(t *testing.T) {
	for _, c := range [][]int{{1, 1, 2, 3}, {5, 7, 31, 1, 33}, {3, 1, 256, 257}} {
		bothTypes(t, fmt.Sprint(c), func(t *testing.T) { checkConcat[float32](t, c[0], c[1], c[2:]...) },
			func(t *testing.T) { checkConcat[float64](t, c[0], c[1], c[2:]...) })
	}
}

func checkConcat[T float](t *testing.T, outer, inner int, middle ...int) {
	var parts []array[T]
	var data [][]T
	total := 0
	for i, m := range middle {
		x := noise[T](uint64(i), outer*m*inner)
		parts, data, total = append(parts, of(x, outer, m, inner)), append(data, x), total+m
	}
	want := onCPU(t, 0, nil, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return gorgonia.Concat(1, in...) }, parts...)
	same(t, "concat", Bound{}, compute(t, outer*total*inner, data...)(Concat(number[T](), outer, inner, middle...)), want.out)
}

func TestCopies(t *testing.T) {
	for _, n := range lengths {
		x := noise[float64](4, n)
		same(t, "copy", Bound{}, compute(t, n, x)(Copy(Float64, n)), x)
		small := noise[float32](4, n)
		same(t, "copy", Bound{}, compute(t, n, small)(Copy(Float32, n)), small)
		same(t, "element", Bound{}, compute(t, 1, x)(At(Float64, n/2)), x[n/2:n/2+1])
		for i, v := range compute[float32](t, n)(Fill(Float32, 1.25, n)) {
			if v != 1.25 {
				t.Fatalf("element %d of %d is filled with %v", i, n, v)
			}
		}
	}
	// The operand consists of two pieces of three elements, and each piece is
	// repeated three times.
	got := compute(t, 18, []float32{1, 2, 3, 4, 5, 6})(Repeat(Float32, 2, 3, 3))
	same(t, "repeat", Bound{}, got, []float32{1, 2, 3, 1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6, 4, 5, 6})
}
