// Package device opens the GPU of a worker, and tells the user what to do if that fails.
//
//	g, err := device.Open(choice, visible, localRank, launched) // nil on a CPU
//	if device.Failed(err) { ... }
//
// # What it refuses
//
// It computes nothing, see package executor/gpu.
package device

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/gpu"
)

// ErrNone says that a worker has no GPU, and must have one.
var ErrNone = config.HintError{
	Text: "--device gpu: the worker was given no gpu (CUDA_VISIBLE_DEVICES is empty)",
	Help: "give each worker a gpu in the resource file (plx probe lists them), or train with --device cpu",
}

// Vendor made the GPUs on which plx's trainer computes.
const Vendor = "NVIDIA"

// otherVendor says that a worker was given a GPU on which plx's trainer does not compute.
func otherVendor(vendor string) error {
	return config.HintError{
		Text: fmt.Sprintf("--device gpu: the worker was given a gpu of %s, and plx's trainer computes on those of %s only", vendor, Vendor),
		Help: "train with --device cpu, or on hosts with gpus of " + Vendor,
	}
}

// Error is an error of a worker's GPU.
type Error struct {
	Prefix string // says which GPU, if Err does not; empty means nothing to say
	Err    error
}

func (e *Error) Error() string { return e.Prefix + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Hint tells the user what to do.
func (e *Error) Hint() string {
	var helpful interface{ Hint() string }
	var late *device.TimeoutError
	var refused *device.Error
	switch {
	case errors.As(e.Err, &helpful):
		return helpful.Hint()
	case errors.As(e.Err, &late):
		return "nvidia-smi and the kernel's log on this host (lines with Xid) show whether the gpu still works"
	case !errors.As(e.Err, &refused):
		return "install NVIDIA's driver on this host, or train with --device cpu"
	}
	switch refused.Code {
	case device.OutOfMemory:
		return "another process has the gpu's memory: plx probe shows who uses it"
	case device.InvalidPTX, device.PTXTooNew:
		return "install a newer driver of NVIDIA's on this host, or train with --device cpu"
	}
	return "nvidia-smi on this host shows whether the driver works; plx probe lists its gpus; or train with --device cpu"
}

// Failed reports whether err is about a worker's GPU.
func Failed(err error) bool {
	_, given := errors.AsType[*Error](err)
	_, refused := errors.AsType[*device.Error](err)
	_, late := errors.AsType[*device.TimeoutError](err)
	_, small := errors.AsType[*gpu.MemoryError](err)
	return given || refused || late || small
}

// Open opens the GPU of a worker. It returns nil if the worker computes on the
// CPU. visible is CUDA_VISIBLE_DEVICES: the worker's GPU, or those of all workers of
// the host; empty if the launcher gave it none. A program without a launcher takes a
// GPU that nobody gave it only if the user asks for one. vendor made the GPUs that it was
// given; empty counts as Vendor.
func Open(choice, visible, vendor string, localRank int, launched bool) (*gpu.Device, error) {
	if strings.HasPrefix(visible, "-") || visible == "NoDevFiles" { // how users and Slurm hide all GPUs
		visible = ""
	}
	other := visible != "" && vendor != "" && vendor != Vendor
	switch {
	case choice == "cpu", choice == "auto" && (visible == "" || other):
		return nil, nil
	case other:
		return nil, otherVendor(vendor)
	case visible == "" && launched:
		return nil, ErrNone
	}
	g, err := open(localRank % (strings.Count(visible, ",") + 1))
	if err == nil {
		return g, nil
	}
	if visible == "" {
		return nil, &Error{"--device gpu: ", err}
	}
	return nil, &Error{fmt.Sprintf("the worker was given gpu %s and cannot use it: ", visible), err}
}

func open(index int) (*gpu.Device, error) {
	g, err := openDriver(index)
	if err != nil {
		return nil, err
	}
	return gpu.On(g)
}

// DriverFile is on every Linux machine where NVIDIA's driver runs.
const DriverFile = "/dev/nvidiactl"

// Unused returns a line for a user whose program runs without a launcher beside a
// GPU, and was not told to use it. Who sets CUDA_VISIBLE_DEVICES knows of the GPU.
func Unused(choice, driverFile string) string {
	_, hidden := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	if _, err := os.Stat(driverFile); err != nil || hidden || choice != "auto" {
		return ""
	}
	return "this machine has a gpu, and the program was given none: it computes on the CPU; --device gpu takes the first one"
}
