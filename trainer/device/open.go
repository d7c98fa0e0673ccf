//go:build !(cu && cgo && linux)

package device

import (
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/device/cuda"
)

// openDriver opens a GPU through NVIDIA's driver library. This is the variant
// for builds without cgo.
func openDriver(index int) (device.GPU, error) { return cuda.Open(index) }
