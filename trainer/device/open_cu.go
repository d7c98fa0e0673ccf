//go:build cu && cgo && linux

package device

import (
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/device/cgocuda"
)

// openDriver opens a GPU through NVIDIA's driver library. This is the variant
// for builds with cgo, which use package gorgonia.org/cu.
func openDriver(index int) (device.GPU, error) { return cgocuda.Open(index) }
