//go:build long

package kernels

import (
	"os/exec"
	"testing"
)

// The PTX files are what clang-14 makes of the CUDA sources.
func TestPTXIsOutputOfClang(t *testing.T) {
	if _, err := exec.LookPath("clang-14"); err != nil {
		t.Skip("there is no clang-14: ", err)
	}
	if out, err := exec.Command("../../../../scripts/make-kernels", "-check").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
