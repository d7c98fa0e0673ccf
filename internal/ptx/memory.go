package ptx

import "github.com/plx-run/plx/internal/ptx/device"

// Memory is the global memory of a device.
type Memory = device.Memory

// NewMemory returns a memory of at most limit bytes.
func NewMemory(limit uint64) *Memory { return device.NewMemory(limit) }

// A Fault is a mistake that a launch found, or an access by the host.
type Fault = device.Fault

// Kind is what is wrong with a kernel or its launch.
type Kind = device.Kind

// The kinds of faults.
const (
	OutOfBounds      = device.OutOfBounds
	UseAfterFree     = device.UseAfterFree
	ReadOnly         = device.ReadOnly
	Misaligned       = device.Misaligned
	Uninitialised    = device.Uninitialised
	SharedRace       = device.SharedRace
	GlobalRace       = device.GlobalRace
	DivergentBarrier = device.DivergentBarrier
	InactiveLane     = device.InactiveLane
	LaunchLimits     = device.LaunchLimits
	StepLimit        = device.StepLimit
	DivideByZero     = device.DivideByZero
	Trapped          = device.Trapped
)
