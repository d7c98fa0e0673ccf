//go:build !(cgocuda && linux)

package driver

import (
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/device/cuda"
)

// Open opens a GPU by its index among those that CUDA_VISIBLE_DEVICES leaves.
func Open(index int) (*device.GPU, error) { return cuda.Open(index) }
