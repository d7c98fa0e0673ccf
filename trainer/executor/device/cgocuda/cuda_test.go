//go:build cu && linux

package cgocuda

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/internal/test/devicetest"
	"github.com/plx-run/plx/trainer/executor/device"
)

// Open reports what is missing, and the package passes the tests of devicetest
// with the stand-in for the driver. One test does both, because a process
// loads only one driver.
func TestBinding(t *testing.T) {
	t.Run("no driver", testNoDriver)
	cudatest.Start(t, cudatest.Options{})
	if _, err := Open(1); err == nil || !strings.Contains(err.Error(), "open gpu 1: cuDeviceGet: error 101 (CUDA_ERROR_INVALID_DEVICE)") {
		t.Errorf("a second gpu: %v", err)
	}
	devicetest.Run(t, func(t *testing.T) device.GPU {
		g, err := Open(0)
		if err != nil {
			t.Fatal(err)
		}
		return g
	})
}

func testNoDriver(t *testing.T) {
	t.Setenv("PLX_CUDA", "libabsent.so.7")
	if _, err := Open(0); err == nil || !strings.Contains(err.Error(), "libabsent.so.7") {
		t.Errorf("without a library: %v", err)
	}
	t.Setenv("PLX_CUDA", "libc.so.6")
	if _, err := Open(0); err == nil || !strings.Contains(err.Error(), "libc.so.6 has no function cu") {
		t.Errorf("with another library: %v", err)
	}
}
