package kernels_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// Shapes that nobody chose.
func TestKernelsMatchCPUOnRandomShapes(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	for range 12 {
		shape := make([]int, 2+random.IntN(3))
		for i := range shape {
			shape[i] = 1 + random.IntN(12)
		}
		checkTranspose[float32](t, shape, random.Perm(len(shape)))
		axis := random.IntN(len(shape))
		start := random.IntN(shape[axis])
		checkSlice[float32](t, shape, axis, start, start+1+random.IntN(shape[axis]-start), 1)
		axes := random.Perm(len(shape))[:1+random.IntN(len(shape))]
		slices.Sort(axes)
		checkReduction[float32](t, shape, axes)
		checkBatchNorm[float32](t, append([]int{shape[0] + 1}, shape[1:]...))
	}
	for range 3 {
		checkProduct[float32](t, Matrices{Count: 1, M: 1 + random.IntN(80), N: 1 + random.IntN(80), K: 1 + random.IntN(80),
			TransA: random.IntN(2) == 1, TransB: random.IntN(2) == 1})
		w := Window{Batch: 1 + random.IntN(3), Channels: 1 + random.IntN(4), Height: 4 + random.IntN(6), Width: 4 + random.IntN(6),
			KernelHeight: 1 + random.IntN(4), KernelWidth: 1 + random.IntN(4), Stride: 1 + random.IntN(3), Pad: random.IntN(3)}
		checkConvolution[float32](t, w, 1+random.IntN(6))
		w.KernelHeight = w.KernelWidth
		w.Pad = min(w.Pad, w.KernelWidth-1)
		checkPools[float32](t, w)
	}
}

// Operations without elements have no launches.
func TestEmptyOperandsHaveNoLaunches(t *testing.T) {
	for what, call := range map[string]func() (Operation, error){
		"binary":    func() (Operation, error) { return Binary(Float32, "+", 0, 0, 0) },
		"spread":    func() (Operation, error) { return Spread(Float32, "+", []int{0, 3}, []int{3, 1}, []int{0, 1}) },
		"transpose": func() (Operation, error) { return Transpose(Float32, []int{3, 0}, []int{1, 0}) },
		"softmax":   func() (Operation, error) { return RowSoftmax(Float32, 0, 5, false) },
		"norm":      func() (Operation, error) { return Normalise(Float32, Channels{0, 3, 4}, 1e-5) },
		"product":   func() (Operation, error) { return Product(Float32, Matrices{Count: 1, M: 0, N: 4, K: 5}) },
		"dropout":   func() (Operation, error) { return Dropout(Float64, 0.5, 0) },
	} {
		if o, err := call(); err != nil || len(o.Launches) > 0 {
			t.Errorf("%s: %d launches, %v", what, len(o.Launches), err)
		}
	}
	if got := compute(t, 2, []float32{})(Sum(Float32, []int{2, 0}, []int{1})); got[0] != 0 || got[1] != 0 {
		t.Errorf("sums of nothing: %v", got)
	}
}
