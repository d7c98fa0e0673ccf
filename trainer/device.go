package trainer

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/plx-run/plx/trainer/blas"
	"github.com/plx-run/plx/trainer/executor/gpu"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// describe returns the GPU and the BLAS library with which a worker computes,
// for a log line at the start. planned is the GPU memory that the trainer
// uses, in bytes.
func (h host) describe(planned int) string {
	if h.device == nil {
		return h.library
	}
	g, info := h.device, h.device.Info
	driver := "driver for CUDA " + info.CUDA()
	if info.Through != "" {
		driver += " through " + info.Through
	}
	text := fmt.Sprintf("gpu %s (compute capability %d.%d, %s), %s of its memory", info.Name, info.Major, info.Minor, driver, size(planned))
	if free, err := g.Available(); err == nil {
		text += fmt.Sprintf(", %s left", size(int(free)))
	}
	return text + ", products by " + g.Products.String() + ", on the CPU " + h.library
}

// newHost returns a description of the BLAS library and the GPU that a worker
// computes with. d is nil if it computes on the CPU.
func newHost(library blas.Library, d *gpu.Device) host {
	h := host{library: library.String(), numerics: numerics(library), device: d}
	if d != nil {
		h.numerics += fmt.Sprintf(", gpu %s, kernels %.12s, %s", d.Info.Name, kernels.Hash(), d.Products.Name())
	}
	return h
}

// kind returns "gpu", or "" if the worker computes on the CPU. Parallelize
// returns an error if workers of a job have different kinds.
func (h host) kind() string {
	if h.device == nil {
		return ""
	}
	return "gpu"
}

// checkKernels looks for operations of the model that have no GPU kernel, so
// that the CPU must compute them. With --device gpu such an operation is an
// error. Otherwise the chief (worker 0) logs a warning.
func (t *training) checkKernels(log *printer, chief bool) error {
	left := t.group.First().OnCPU()
	if len(left) == 0 {
		return nil
	}
	list := strings.Join(left, "; ")
	if t.config.Device == "gpu" {
		return fmt.Errorf("--device gpu: there is no kernel for %s: train with --device auto, which computes them on the CPU", list)
	}
	if chief {
		log.Logf(slog.LevelWarn, "computed on the CPU, because the gpu has no kernel: %s", list)
	}
	return nil
}
