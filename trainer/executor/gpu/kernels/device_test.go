package kernels_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/trainer/executor/device"
	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

type float interface{ float32 | float64 }

// number returns the kernels' Type for Go type T.
func number[T float]() Type {
	if unsafe.Sizeof(T(0)) == 8 {
		return Float64
	}
	return Float32
}

// bytesOf returns the memory of x as bytes, without a copy.
func bytesOf[T any](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}

// execute runs operation o on the GPU of the tests and copies all operands
// back. The operands are in the order of o.Operands. The first operands, whose
// number is outputs, are not initialised, so that valgrind reports a kernel
// that reads them.
func execute(t *testing.T, o Operation, outputs int, operands ...[]byte) {
	t.Helper()
	if len(operands) != len(o.Operands) {
		t.Fatalf("%d operands for %q", len(operands), o.Operands)
	}
	b := open(t)
	s, addresses, host := b.stream(), []uint64{}, [][]byte{}
	for i, operand := range operands {
		at, pinned := b.memory(len(operand))
		defer func() { b.must(b.Free(device.Pointer(at))); b.must(b.FreeHost(pinned)) }()
		if i >= outputs && len(operand) > 0 {
			copy(pinned, operand)
			b.must(s.In(device.Pointer(at), pinned[:len(operand)]))
		}
		addresses, host = append(addresses, at), append(host, pinned)
	}
	scratch, pinned := b.memory(o.Scratch)
	defer func() { b.must(b.Free(device.Pointer(scratch))); b.must(b.FreeHost(pinned)) }()
	addresses = append(addresses, scratch)
	for _, l := range o.Launches {
		b.must(s.Launch(b.kernel(l.Module, l.Kernel), device.Shape{Grid: l.Grid, Block: l.Block}, l.Params(addresses...)))
	}
	for i, operand := range operands {
		if len(operand) > 0 {
			b.must(s.Out(host[i][:len(operand)], device.Pointer(addresses[i])))
		}
	}
	b.finish(s)
	call := cudatest.Call{}
	for i, operand := range operands {
		var before []byte // nil, because a kernel may not read the initial contents
		if i >= outputs {
			before = bytes.Clone(operand)
		}
		copy(operand, host[i])
		call.Operands, call.Sizes = append(call.Operands, before), append(call.Sizes, len(operand))
		call.Results = append(call.Results, bytes.Clone(operand))
	}
	if record != nil {
		call.Operands, call.Sizes = append(call.Operands, nil), append(call.Sizes, o.Scratch)
		for _, l := range o.Launches {
			call.Launches = append(call.Launches, cudatest.Launch{Kernel: l.Kernel, Grid: l.Grid, Block: l.Block, Pointers: l.Operands, Scalars: l.Scalars})
		}
		record(call)
	}
}

// record, if not nil, receives each call of execute.
var record func(cudatest.Call)

// compute returns a function that runs an operation and returns its result of
// n elements. The function takes the two results of the operation's
// constructor.
func compute[T float](t *testing.T, n int, inputs ...[]T) func(Operation, error) []T {
	t.Helper()
	return func(o Operation, err error) []T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		out := make([]T, n)
		operands := [][]byte{bytesOf(out)}
		for _, x := range inputs {
			operands = append(operands, bytesOf(x))
		}
		execute(t, o, 1, operands...)
		return out
	}
}

// noise returns n numbers from a normal distribution, determined by seed.
func noise[T float](seed uint64, n int) []T {
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	x := make([]T, n)
	for i := range x {
		x[i] = T(random.NormFloat64())
	}
	return x
}

// same fails the test if got is further from want than bound b allows. slack
// has one number for each element: the number of terms times the sum of their
// absolute values, by which the bound's Terms is multiplied.
func same[T float](t *testing.T, what string, b Bound, got, want []T, slack ...float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	unit := 0x1p-24
	if unsafe.Sizeof(T(0)) == 8 {
		unit = 0x1p-53
	}
	for i := range want {
		if got[i] != got[i] && want[i] != want[i] || bitsOf(got[i]) == bitsOf(want[i]) {
			continue
		}
		if d := distance(got[i], want[i]); d <= b.ULPs {
			continue
		}
		if off := math.Abs(float64(got[i]) - float64(want[i])); len(slack) > 0 && off <= b.Terms*unit*slack[i%len(slack)] {
			continue
		}
		t.Fatalf("%s, element %d of %d: %v, want %v, %v units in the last place away; the bound is %+v",
			what, i, len(want), got[i], want[i], distance(got[i], want[i]), b)
	}
}

func bitsOf[T float](x T) uint64 {
	if unsafe.Sizeof(x) == 4 {
		return uint64(math.Float32bits(float32(x)))
	}
	return math.Float64bits(float64(x))
}

// distance returns the number of floating-point numbers from a to b, or
// infinity if one of them is NaN.
func distance[T float](a, b T) float64 {
	if a != a || b != b {
		return math.Inf(1)
	}
	return math.Abs(float64(ordered(a) - ordered(b)))
}

// ordered maps floating-point numbers to integers in the same order, so that
// neighbours differ by 1.
func ordered[T float](x T) int64 {
	bits, sign := bitsOf(x), uint(31)
	if unsafe.Sizeof(x) == 8 {
		sign = 63
	}
	size := int64(bits &^ (1 << sign))
	if bits>>sign != 0 {
		return -size
	}
	return size
}
