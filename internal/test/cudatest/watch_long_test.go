//go:build long

package cudatest_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/cudatest"
)

// ones returns n float32 numbers of 1, encoded as bytes.
func ones(n int) (b []byte) {
	for range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(1))
	}
	return b
}

// Valgrind's tools must find one planted bug of each type, and report nothing
// for a correct kernel.
func TestWatchFindsPlantedBugs(t *testing.T) {
	for _, c := range []struct{ kernel, tool, want string }{
		{"right", cudatest.Helgrind, ""},
		{"right", cudatest.Memcheck, ""},
		{"missing_barrier", cudatest.Helgrind, "Possible data race"},
		{"wrong_address", cudatest.Memcheck, "Invalid write of size 4"},
		{"unset_value", cudatest.Memcheck, "depends on uninitialised value"},
	} {
		t.Run(c.kernel+" "+c.tool, func(t *testing.T) {
			t.Parallel()
			const blocks = 2
			call := cudatest.Call{
				Operands: [][]byte{nil, ones(64 * blocks)}, Sizes: []int{4 * 64 * blocks, 4 * 64 * blocks},
				Launches: []cudatest.Launch{{Kernel: c.kernel, Grid: [3]uint32{blocks, 1, 1}, Block: [3]uint32{64, 1, 1}, Pointers: []int{0, 1}}},
			}
			if c.kernel == "right" {
				call.Sizes[0] = 4 * blocks
				call.Results = [][]byte{{0, 0, 128, 66, 0, 0, 128, 66}} // 64
			}
			var r cudatest.Recording
			r.Add(call)
			err := cudatest.Watch(t, &r, c.tool)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// Watch must also detect a result that differs from the recorded one.
func TestWatchDetectsAWrongResult(t *testing.T) {
	var r cudatest.Recording
	r.Add(cudatest.Call{Operands: [][]byte{ones(1)}, Sizes: []int{4}, Results: [][]byte{{1, 2, 3, 4}}})
	if err := cudatest.Watch(t, &r, cudatest.Memcheck); err == nil || !strings.Contains(err.Error(), "1 wrong results") {
		t.Errorf("got %v", err)
	}
}
