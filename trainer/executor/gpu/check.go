package gpu

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// tooOldError reports that a GPU or NVIDIA's driver is older than plx's
// kernels require.
type tooOldError struct{ text, hint string }

func (e *tooOldError) Error() string { return e.text }

// Hint returns advice for the user.
func (e *tooOldError) Hint() string { return e.hint }

// check returns an error if the GPU or NVIDIA's driver is older than plx's
// kernels require.
func check(g device.Info) error {
	if g.Driver < kernels.LeastCUDA {
		return &tooOldError{
			fmt.Sprintf("its driver is for CUDA %s, and plx's kernels need one for CUDA %s", g.CUDA(), device.Info{Driver: kernels.LeastCUDA}.CUDA()),
			"install a newer driver of NVIDIA's on this host, or train with --device cpu",
		}
	}
	if 10*g.Major+g.Minor < kernels.LeastCapability {
		return &tooOldError{
			fmt.Sprintf("%s has compute capability %d.%d, and plx's kernels need %d.%d", g.Name, g.Major, g.Minor, kernels.LeastCapability/10, kernels.LeastCapability%10),
			"give the worker a newer gpu (plx probe shows compute capabilities), or train with --device cpu",
		}
	}
	return nil
}
