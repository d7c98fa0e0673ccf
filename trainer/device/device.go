// Package device opens the GPU that a worker computes on. Its errors carry
// hints on what the user can do.
//
//	g, err := device.Open(choice, visible, vendor, localRank, launched) // nil on a CPU
//	if device.Failed(err) { ... }
//
// The package only opens the GPU. Package executor/gpu computes on it.
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

// ErrNone is the error of a worker that runs with --device gpu but got no GPU
// from the launcher.
var ErrNone = config.HintError{
	Text: "--device gpu: the worker was given no gpu (CUDA_VISIBLE_DEVICES is empty)",
	Help: "give each worker a gpu in the resource file (plx probe lists them), or train with --device cpu",
}

// Vendor is the only maker of GPUs that plx's trainer supports.
const Vendor = "NVIDIA"

// otherVendor returns the error for a worker with --device gpu whose GPU is
// not made by NVIDIA.
func otherVendor(vendor string) error {
	return config.HintError{
		Text: fmt.Sprintf("--device gpu: the worker was given a gpu of %s, and plx's trainer computes on those of %s only", vendor, Vendor),
		Help: "train with --device cpu, or on hosts with gpus of " + Vendor,
	}
}

// Error wraps an error that occurred on a worker's GPU and adds a hint for the
// user.
type Error struct {
	Prefix string // name of the GPU for the start of the message; empty if Err names the GPU
	Err    error
}

func (e *Error) Error() string { return e.Prefix + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Hint returns one line of advice for the user, chosen by the kind of GPU
// error.
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

// Failed reports whether err comes from a worker's GPU: it could not be
// opened, refused a call, timed out or ran out of memory.
func Failed(err error) bool {
	_, given := errors.AsType[*Error](err)
	_, refused := errors.AsType[*device.Error](err)
	_, late := errors.AsType[*device.TimeoutError](err)
	_, small := errors.AsType[*gpu.MemoryError](err)
	return given || refused || late || small
}

// Open opens the GPU of a worker. It returns nil if the worker computes on the
// CPU.
//
// The parameter choice is the value of --device: cpu, gpu or auto. visible is
// the value of CUDA_VISIBLE_DEVICES. If visible lists several GPUs, localRank
// selects the worker's GPU. An empty visible means that the launcher assigned
// no GPU. In a program that plx did not launch, an empty visible opens a GPU
// only if choice is gpu. vendor is the maker of the GPUs; empty means NVIDIA.
func Open(choice, visible, vendor string, localRank int, launched bool) (*gpu.Device, error) {
	if strings.HasPrefix(visible, "-") || visible == "NoDevFiles" { // users and Slurm set CUDA_VISIBLE_DEVICES to one of these values to hide all GPUs
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

// DriverFile is a device file that exists on every Linux machine with NVIDIA's
// driver loaded.
const DriverFile = "/dev/nvidiactl"

// Unused returns a log line for a program that plx did not launch and that
// computes on the CPU although the machine has a GPU. It returns "" if the
// user set --device or CUDA_VISIBLE_DEVICES, and so chose the CPU.
func Unused(choice, driverFile string) string {
	_, hidden := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	if _, err := os.Stat(driverFile); err != nil || hidden || choice != "auto" {
		return ""
	}
	return "this machine has a gpu, and the program was given none: it computes on the CPU; --device gpu takes the first one"
}
