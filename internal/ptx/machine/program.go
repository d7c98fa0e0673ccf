// Package machine executes programs: lists of steps that package compile makes
// of kernels. A Block runs the blocks of a launch one after the other, a Warp
// runs 32 threads in lockstep.
//
//	b := machine.NewBlock(launch, memory, params, variables)
//	err := b.Run([3]uint32{0, 0, 0})
//
// Registers are arrays of 32 uint64, one for each lane; predicates are masks of
// lanes. Constants and special registers are registers that no step writes. So a
// step never asks what its operands are.
package machine

import "github.com/plx-run/plx/internal/ptx/device"

// Lanes is the number of threads of a warp.
const Lanes = 32

const allMask = 1<<Lanes - 1

// A Step is what an instruction does for the lanes of a warp that execute it.
type Step interface{ Run(w *Warp) }

// A Line is one instruction of a program.
type Line struct {
	Step   Step
	Guard  int32 // index of a predicate; -1 for none
	Negate bool  // the guard's opposite counts
	Source int32 // line of the PTX
}

// A Constant is a register that no instruction writes.
type Constant struct {
	Register int
	Bits     uint64
}

// A Program is a kernel as a list of steps. The last one is Leave.
type Program struct {
	Code       []Line
	Registers  int // constants, special registers and symbols are among them
	Predicates int
	Constants  []Constant
	Specials   []Special
	Symbols    []Constant // a register for the address of a variable: Bits is its index
	Truths     [2][]int   // predicates that are always false, and always true
	Static     int        // bytes of static shared memory on a device
	Layout     int        // bytes of it here, with gaps between variables
	Gaps       [][2]int   // begin and end of each
	Dynamic    int        // offset of dynamic shared memory
	Local      int        // bytes of a lane's local memory
	Accesses   int        // loads, stores and atomics
}

// A Special is a register that holds a special register such as %tid.x.
type Special struct {
	Register int
	Name     string
}

// A Launch is one run of a program.
type Launch struct {
	Kernel    string
	Program   *Program
	Grid      [3]uint32
	Block     [3]uint32
	Dynamic   uint32 // bytes of shared memory beyond the static ones
	StepLimit uint64 // instructions of warps
	Races     bool   // find them
}

// Threads is the number of threads of a block.
func (l *Launch) Threads() uint32 { return l.Block[0] * l.Block[1] * l.Block[2] }

// A Block runs the blocks of a launch, one after the other.
type Block struct {
	launch   Launch
	memory   *device.Memory
	index    [3]uint32 // ctaid
	warps    []*Warp
	shared   *device.Region
	params   *device.Region
	recent   []*device.Region // the region that each access reached last
	fault    *device.Fault
	written  []uint32     // lanes that have each register when a block begins
	assigned []uint32     // and each predicate
	clock    device.Clock // for global memory
	steps    uint64       // instructions of warps
	threads  uint64       // instructions of threads
}
