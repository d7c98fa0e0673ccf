package cudatest_test

import (
	"testing"

	"github.com/plx-run/plx/internal/cudatest"
	"github.com/plx-run/plx/internal/devicetest"
	"github.com/plx-run/plx/trainer/executor/device"
)

// The interpreter passes the suite of the drivers' bindings.
func TestInterpreter(t *testing.T) {
	devicetest.Run(t, func(*testing.T) *device.GPU { return cudatest.Interpreter(1 << 30) })
}
