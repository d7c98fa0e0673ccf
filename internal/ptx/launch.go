package ptx

import (
	"fmt"
	"sync"

	"github.com/plx-run/plx/internal/ptx/device"
	"github.com/plx-run/plx/internal/ptx/machine"
)

// A Kernel is a function that Launch runs.
type Kernel struct {
	module     *Module
	name       string
	program    *machine.Program
	params     []Param
	paramBytes int
	maxThreads [3]uint32

	mu   sync.Mutex
	idle *machine.Block // of the last launch, for the next one; nil for none
}

// Name returns the kernel's name.
func (k *Kernel) Name() string { return k.name }

// Params returns the kernel's parameters. The bytes that Launch takes lie so.
func (k *Kernel) Params() []Param { return k.params }

// ParamBytes returns the size of all parameters.
func (k *Kernel) ParamBytes() int { return k.paramBytes }

// SharedBytes returns the size of the static shared memory.
func (k *Kernel) SharedBytes() int { return k.program.Static }

// LocalBytes returns the size of the local memory of a thread.
func (k *Kernel) LocalBytes() int { return k.program.Local }

// A Count says how much a launch executed.
type Count struct {
	Warps   uint64 // instructions, each for the lanes of a warp
	Threads uint64 // instructions, each for one thread
}

// Launch runs the kernel for every thread of a grid. It keeps the memory to
// itself until it ends.
func (k *Kernel) Launch(m *Memory, grid, block [3]uint32, sharedBytes uint32, params []byte) error {
	_, err := k.Measure(m, grid, block, sharedBytes, params)
	return err
}

// Measure is Launch, and counts.
func (k *Kernel) Measure(m *Memory, grid, block [3]uint32, sharedBytes uint32, params []byte) (Count, error) {
	if what := k.check(grid, block, sharedBytes, len(params)); what != "" {
		return Count{}, &Fault{Kind: LaunchLimits, Kernel: k.name, What: what}
	}
	m.Lock()
	defer m.Unlock()
	variables, err := k.module.load(m)
	if err != nil {
		return Count{}, err
	}
	b := k.take(machine.Launch{Kernel: k.name, Program: k.program, Grid: grid, Block: block, Dynamic: sharedBytes,
		StepLimit: k.module.options.StepLimit, Races: k.module.options.Races}, m, variables, params)
	fault := runAll(b, grid)
	warps, threads := b.Counted()
	if fault != nil {
		return Count{warps, threads}, fault
	}
	k.give(b)
	return Count{warps, threads}, nil
}

// take returns a block that has begun a launch: the last one's, if it fits.
func (k *Kernel) take(l machine.Launch, m *Memory, variables []*device.Region, params []byte) *machine.Block {
	k.mu.Lock()
	b := k.idle
	k.idle = nil
	k.mu.Unlock()
	if b == nil || !b.Fits(l, m) {
		b = machine.NewBlock(l, m, variables)
	}
	b.Begin(l, params)
	return b
}

func (k *Kernel) give(b *machine.Block) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.idle = b
}

// runAll runs the blocks of a grid, x first.
func runAll(b *machine.Block, grid [3]uint32) *Fault {
	for z := range grid[2] {
		for y := range grid[1] {
			for x := range grid[0] {
				if fault := b.Run([3]uint32{x, y, z}); fault != nil {
					return fault
				}
			}
		}
	}
	return nil
}

// check returns what is wrong with a launch, or nothing.
func (k *Kernel) check(grid, block [3]uint32, sharedBytes uint32, params int) string {
	threads := uint64(1)
	for i := range 3 {
		if grid[i] == 0 || block[i] == 0 {
			return fmt.Sprintf("the grid is %v and the block %v: a dimension is zero", grid, block)
		}
		if i > 0 && grid[i] > 65535 || grid[i] > 1<<31-1 {
			return fmt.Sprintf("the grid is %v: more blocks than a device allows", grid)
		}
		threads *= min(uint64(block[i]), mostThreads+1)
	}
	bound := uint64(k.maxThreads[0]) * uint64(k.maxThreads[1]) * uint64(k.maxThreads[2])
	shared := uint64(sharedBytes) + uint64(k.program.Static)
	switch {
	case threads > mostThreads || block[2] > 64:
		return fmt.Sprintf("the block is %v: more threads than %d", block, mostThreads)
	case bound > 0 && threads > bound:
		return fmt.Sprintf("the block has %d threads; the kernel was compiled for at most %d", threads, bound)
	case k.program.Static > mostStaticShared:
		return fmt.Sprintf("%d bytes of static shared memory, more than %d", k.program.Static, mostStaticShared)
	case shared > mostDynamicShared:
		return fmt.Sprintf("%d bytes of shared memory, more than %d", shared, mostDynamicShared)
	case params != k.paramBytes:
		return fmt.Sprintf("%d bytes of parameters, the kernel has %d", params, k.paramBytes)
	}
	return ""
}
