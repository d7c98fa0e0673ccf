//go:build long

package kernels_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/cudatest"
	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// Every kernel runs under valgrind, with one thread for each CUDA thread, on
// the shapes of the other tests of this package. Valgrind must report no race,
// no missing barrier, no access outside of the operands and no use of
// uninitialised memory. The results must have the same bits.
func TestValgrind(t *testing.T) {
	if cudatest.OnMachine() {
		t.Skip("valgrind watches kernels that are compiled for the CPU")
	}
	const each, largest = 2, 40 << 10 // each: number of calls of one kernel; largest: bytes of the operands of one call
	all := map[string][]cudatest.Call{}
	record = func(c cudatest.Call) {
		total, key := 0, ""
		for _, n := range c.Sizes {
			total += n
		}
		for _, l := range c.Launches {
			key += l.Kernel + " "
		}
		if key != "" && total <= largest {
			all[key] = append(all[key], c)
		}
	}
	defer func() { record = nil }()
	for _, test := range []func(*testing.T){
		TestUnaryFunctionsMatchCPU, TestBinaryOperatorsMatchCPU, TestBroadcastOperatorsMatchCPU, TestActivationGradientsMatchCPU, TestAddBiasMatchesCPU, TestMinAndMaxMatchCPU, TestGridSizeDoesNotChangeBits,
		TestTransposeMatchesCPU, TestSlicesMatchCPU, TestConcatMatchesCPU, TestCopies, TestReductionsMatchCPU, TestDotAndSumsOfSquaresMatchCPU, TestProductsMatchCPU, TestLargeTilesGiveSameBits, TestMatVecMatchesCPU, TestOuterMatchesCPU,
		TestSoftmaxMatchesCPU, TestSoftmaxAlongMiddleAxis, TestCrossEntropyMatchesCPU, TestConvolutionMatchesCPU, TestFilterGradientOfManyImages, TestPoolsMatchCPU, TestBatchNormMatchesCPU,
		TestNormGradientInAnEvaluation, TestDropoutMatchesCPU, TestUpdatesMatchOptimizer, TestUpdateNeedsFiniteLoss, TestClipScalesAllUpdates, TestKernelsMatchCPUOnRandomShapes,
	} {
		test(t)
	}
	if t.Failed() {
		return
	}
	var r cudatest.Recording
	seen := map[string]bool{}
	for key, calls := range all {
		slices.SortFunc(calls, func(a, b cudatest.Call) int {
			return cmp.Compare(len(a.Operands[0])+a.Sizes[0], len(b.Operands[0])+b.Sizes[0])
		})
		for i := range min(each, len(calls)) { // take the smallest and the largest call
			r.Add(calls[i*(len(calls)-1)/max(1, min(each, len(calls))-1)])
		}
		for _, kernel := range strings.Fields(key) {
			seen[kernel] = true
		}
	}
	for _, m := range Modules() {
		for _, found := range strings.Split(m.PTX, ".entry ")[1:] {
			if name, _, _ := strings.Cut(found, "("); !seen[name] {
				t.Errorf("no test of a small shape launches %s", name)
			}
		}
	}
	t.Logf("%d calls of %d kernels", r.Calls(), len(seen))
	for _, tool := range []string{cudatest.Memcheck, cudatest.Helgrind} {
		t.Run(tool, func(t *testing.T) {
			if err := cudatest.Watch(t, &r, tool); err != nil {
				t.Error(err)
			}
		})
	}
}
