// Package device is the global memory of a device as tests need it: every
// allocation has its own place, with room around it, and knows which of its
// bytes were written. Faults are the mistakes that a kernel or a host makes.
//
//	m := device.NewMemory(1 << 30)
//	x, err := m.Alloc(4096)
//	err = m.Write(x, bytes)
//
// It refuses to read what nobody wrote, and never uses an address again.
package device

import "fmt"

// Kind is what is wrong with a kernel or its launch.
type Kind int

// The kinds of faults.
const (
	OutOfBounds      Kind = iota + 1 // no allocation, variable or parameter is there
	UseAfterFree                     // an allocation was there
	ReadOnly                         // a write to constant memory or to parameters
	Misaligned                       // the address is no multiple of the access's size
	Uninitialised                    // a read of memory or of a register that nobody wrote
	SharedRace                       // two threads of a block, no barrier between them
	GlobalRace                       // two threads of a launch, no barrier between them
	DivergentBarrier                 // not all threads of the block reach one barrier
	InactiveLane                     // a mask names lanes that do not execute the instruction
	LaunchLimits                     // more threads or memory than a device has, or wrong parameters
	StepLimit                        // the launch takes too many steps
	DivideByZero                     // an integer division
	Trapped                          // the kernel executed trap
)

var kinds = map[Kind]string{
	OutOfBounds: "out of bounds", UseAfterFree: "use after free", ReadOnly: "write to read-only memory",
	Misaligned: "misaligned access", Uninitialised: "uninitialised read", SharedRace: "race in shared memory",
	GlobalRace: "race in global memory", DivergentBarrier: "divergent barrier", InactiveLane: "inactive lane",
	LaunchLimits: "launch limits", StepLimit: "step limit", DivideByZero: "division by zero", Trapped: "trap",
}

func (k Kind) String() string { return kinds[k] }

// A Fault is a mistake that a launch found, or a host's access to memory.
type Fault struct {
	Kind    Kind
	Kernel  string    // empty for an access by the host
	Line    int       // of the PTX; zero if no instruction is to blame
	Block   [3]uint32 // ctaid of the thread
	Thread  [3]uint32 // tid of the thread
	Address uint64    // of the access; zero for others
	What    string    // more about it
}

func (f *Fault) Error() string {
	text := fmt.Sprintf("%v: %s", f.Kind, f.What)
	if f.Kernel == "" {
		return "device memory: " + text
	}
	if f.Line == 0 {
		return fmt.Sprintf("kernel %s: %s", f.Kernel, text)
	}
	return fmt.Sprintf("kernel %s: line %d: block (%d,%d,%d): thread (%d,%d,%d): %s", f.Kernel, f.Line,
		f.Block[0], f.Block[1], f.Block[2], f.Thread[0], f.Thread[1], f.Thread[2], text)
}
