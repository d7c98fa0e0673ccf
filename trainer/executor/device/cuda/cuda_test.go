//go:build linux && (amd64 || arm64)

package cuda

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/internal/test/devicetest"
	"github.com/plx-run/plx/trainer/executor/device"
)

// The package passes the tests of devicetest with the stand-in for the driver.
func TestSuite(t *testing.T) {
	devicetest.Run(t, func(t *testing.T) device.GPU {
		cudatest.Start(t, cudatest.Options{})
		g, err := Open(0)
		if err != nil {
			t.Fatal(err)
		}
		return g
	})
}

func TestLaunchAllocatesNothing(t *testing.T) {
	cudatest.Start(t, cudatest.Options{})
	g, err := Open(0)
	if err != nil {
		t.Fatal(err)
	}
	devicetest.LaunchAllocatesNothing(t, g)
}

// The error of Open says what is missing: the driver's library, a function in
// it, or the GPU.
func TestOpenFails(t *testing.T) {
	t.Setenv("PLX_CUDA", "libabsent.so.7")
	if _, err := Open(0); err == nil || !strings.Contains(err.Error(), "libabsent.so.7") {
		t.Errorf("without a library: %v", err)
	}
	t.Setenv("PLX_CUDA", "libc.so.6")
	if _, err := Open(0); err == nil || !strings.Contains(err.Error(), "libc.so.6 has no function cu") {
		t.Errorf("with another library: %v", err)
	}
	cudatest.Start(t, cudatest.Options{})
	if _, err := Open(1); err == nil || !strings.Contains(err.Error(), "open gpu 1: cuDeviceGet: error 101 (CUDA_ERROR_INVALID_DEVICE)") {
		t.Errorf("a second gpu: %v", err)
	}
}
