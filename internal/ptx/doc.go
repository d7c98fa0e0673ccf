// Package ptx runs PTX, the assembly language of NVIDIA devices, without a
// device: kernels that clang compiles from CUDA C, for tests. It finds what
// compute-sanitizer finds on a device.
//
//	memory := ptx.NewMemory(1 << 30)
//	module, err := ptx.Parse(source)
//	x, err := memory.Alloc(4096)
//	kernel, err := module.Kernel("fill")
//	err = kernel.Launch(memory, grid, block, 0, params)
//
// # What a launch finds
//
// Launch returns a *Fault for the first mistake of a kernel. See Kind for all
// of them: accesses outside of live allocations, misaligned ones, reads of what
// nobody wrote, races in global and shared memory, barriers that not all threads
// of a block reach, shuffles from lanes that are not there, and endless loops.
//
// # How it runs
//
// Parse compiles each kernel to a list of steps with registers as indices. A
// device function is copied into its callers. A warp executes one step for its
// 32 lanes at once: the choice of a step is paid once for 32 threads, and
// shuffles and votes need lanes in lockstep anyway. Lanes that diverge form
// groups, and the group with the lowest program counter runs first, so that
// groups meet again at the end of branches and loops. The warps of a block run
// one after the other, each until a barrier; the blocks of a launch too. So
// every launch is deterministic, and the order of atomic additions is fixed.
//
// # Races
//
// A shadow of 16 bytes for each word of memory keeps who read and wrote it last,
// and when. Two accesses race if they touch one byte, one of them writes, not
// both are atomic or volatile, and no barrier of their block or meeting of their
// warp (bar.warp.sync) is between them. Two blocks of one launch are never
// ordered. A meeting counts for all lanes of the warp, even if its mask is
// smaller. Options switch the search off: launches then take about half the time.
//
// # What it refuses
//
// Instructions whose bits depend on the device (such as ex2.approx), flushing of
// subnormal numbers, recursion, indirect calls, textures, barriers for a part of
// a block, and clusters. Parse returns an error that names the line. Rounding of
// arithmetic is to nearest even only; cvt knows all directions.
//
// # What differs from a device
//
// A thread that waits for another one in a loop waits for ever if that one is of
// the same warp, of a later warp with no barrier, or of a later block: the launch
// ends at the step limit. On devices red.global.add.f32 flushes subnormal numbers
// and adds in any order.
package ptx
