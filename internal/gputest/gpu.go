// Package gputest gives tests a GPU: one that the interpreter of kernels plays, or
// that of this machine if the variable PLX_TEST_GPU is set.
//
//	g := gputest.Open(t)
//
// A test that uses it runs in every make test without a GPU, and in make gpu-check's
// folder on a machine that has one.
package gputest

import (
	"sync"
	"testing"

	"github.com/plx-run/plx/internal/cudatest"
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/device/driver"
)

// Open returns the GPU of this process. All tests of a process share it. The test
// fails if the machine's GPU cannot be opened.
func Open(t testing.TB) *device.GPU {
	t.Helper()
	g, err := Shared()
	if err != nil {
		t.Fatalf("open the gpu of this machine: %v", err)
	}
	return g
}

// Shared is Open without a test.
var Shared = sync.OnceValues(func() (*device.GPU, error) {
	if cudatest.OnMachine() {
		return driver.Open(0)
	}
	return cudatest.Interpreter(1 << 30), nil
})
