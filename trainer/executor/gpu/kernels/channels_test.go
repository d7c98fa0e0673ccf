package kernels_test

import (
	"fmt"
	"math"
	"testing"

	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"github.com/plx-run/plx/trainer/nn/ops"
	"github.com/plx-run/plx/trainer/random"
	"gorgonia.org/gorgonia"
)

func TestBatchNormMatchesCPU(t *testing.T) {
	for _, s := range [][]int{{2, 1}, {6, 10}, {257, 3}, {33, 40}, {3, 4, 5, 6}, {2, 3, 31, 33}, {2, 2, 1, 1}, {600, 5}, {9, 2, 31, 33}} {
		bothTypes(t, fmt.Sprint(s), func(t *testing.T) { checkBatchNorm[float32](t, s) }, func(t *testing.T) { checkBatchNorm[float64](t, s) })
	}
}

func checkBatchNorm[T float](t *testing.T, s []int) {
	const epsilon = 1e-5
	c, typ := Channels{Batch: s[0], Channels: s[1], Space: size(s[2:])}, number[T]()
	x, scale, bias, running := noise[T](1, size(s)), noise[T](2, s[1]), noise[T](3, s[1]), magnitudes(noise[T](4, s[1]))
	dy := noise[T](5, len(x))
	var which func(ops.Normalised) *gorgonia.Node
	build := func(in gorgonia.Nodes) (*gorgonia.Node, error) {
		n, err := ops.BatchNorm(in[0], in[1], in[2], in[3], in[4], 0.9, epsilon, "norm")
		return which(n), err
	}
	operands := []array[T]{of(x, s...), of(scale, s[1]), of(bias, s[1]), of(running, s[1]), of(running, s[1])}
	result := func(n int, node func(ops.Normalised) *gorgonia.Node) results[T] {
		which = node
		if n == 0 {
			return onCPU(t, 0, nil, build, operands...)
		}
		return onCPU(t, n, dy, build, operands...)
	}
	mean := result(0, func(n ops.Normalised) *gorgonia.Node { return n.BatchMean }).out
	variance := result(0, func(n ops.Normalised) *gorgonia.Node { return n.BatchVariance }).out
	want := result(3, func(n ops.Normalised) *gorgonia.Node { return n.Out })

	b, slack := BoundOf("channels", typ), sumOf(x)+sumOf(dy)*10
	same(t, "mean", b, compute(t, s[1], x)(ChannelMeans(typ, c)), mean, slack)
	same(t, "variance", b, compute(t, s[1], x, mean)(ChannelVariances(typ, c)), variance, slack*10)
	same(t, "result", Bound{}, compute(t, len(x), x, scale, bias, mean, variance)(Normalise(typ, c, epsilon)), want.out)
	dScale, dBias := want.gradients[1], want.gradients[2]
	same(t, "gradient of bias", b, compute(t, s[1], dy)(ChannelSums(typ, c)), dBias, slack)
	same(t, "gradient of scale", b, compute(t, s[1], x, mean, variance, dy)(ScaleGradient(typ, c, epsilon)), dScale, slack*100)
	dx := compute(t, len(x), x, scale, mean, variance, dy, dScale, dBias)(NormGradient(typ, c, epsilon, true))
	same(t, "gradient of x", Bound{}, dx, want.gradients[0])
}

// In an evaluation the gradient of x is dy times scale divided by the standard
// deviation.
func TestNormGradientInAnEvaluation(t *testing.T) {
	c := Channels{Batch: 1, Channels: 2, Space: 1}
	dx := compute(t, 2, []float64{5, 6}, []float64{2, 3}, []float64{1, 1}, []float64{4, 9}, []float64{8, 10}, []float64{7, 7}, []float64{7, 7})(
		NormGradient(Float64, c, 0, false))
	same(t, "gradient", Bound{ULPs: 1}, dx, []float64{8, 10})
}

func TestDropoutMatchesCPU(t *testing.T) {
	for _, n := range append(lengths, 8, 9) {
		for _, p := range []float64{0, 0.3, 0.5, 0.99999} {
			bothTypes(t, fmt.Sprint(n, p), func(t *testing.T) { checkDropout[float32](t, n, p) }, func(t *testing.T) { checkDropout[float64](t, n, p) })
		}
	}
}

// The random number that decides about an element may be equal to the
// probability. The GPU must then decide as the CPU does.
func TestDropoutWithRandomNumberEqualToProbability(t *testing.T) {
	stream := random.New(training.Seed, "dropout1").Derive(training.Step, uint64(training.VirtualWorker))
	for _, word := range stream.Bits(0) {
		checkDropout[float32](t, 8, float64(word&0xffff)/(1<<16))
		checkDropout[float32](t, 8, float64(word>>16)/(1<<16))
	}
}

func checkDropout[T float](t *testing.T, n int, p float64) {
	x, dy := noise[T](1, n), noise[T](2, n)
	x[n/2] = T(math.NaN())
	want := onCPU(t, 1, dy, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return ops.Dropout(in[0], p, "dropout1") }, of(x, n))
	words := random.New(training.Seed, "dropout1").Derive(training.Step, uint64(training.VirtualWorker)).Words()
	o, err := Dropout(number[T](), p, n)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2][]T{{x, want.out}, {dy, want.gradients[0]}} {
		got := make([]T, n)
		execute(t, o, 1, bytesOf(got), bytesOf(c[0]), bytesOf(words[:]))
		same(t, "dropout", Bound{}, got, c[1])
	}
}
