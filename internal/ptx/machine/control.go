package machine

import "github.com/plx-run/plx/internal/ptx/device"

// The steps that decide what a warp executes next.
type (
	Jump    struct{ target int }
	Leave   struct{} // the threads end
	Barrier struct{} // for all threads of the block
	Fence   struct{} // all accesses are seen at once anyway
	Trap    struct{}
)

// Run executes the step.
func (s *Jump) Run(w *Warp) { w.jump(s.target) }

// To sets where the jump goes.
func (s *Jump) To(target int) { s.target = target }

// Run executes the step.
func (Leave) Run(w *Warp) { w.leave() }

// Run executes the step.
func (Barrier) Run(w *Warp) { w.wait() }

// Run executes the step.
func (Fence) Run(*Warp) {}

// Run executes the step.
func (Trap) Run(w *Warp) { w.fail(device.Trapped, w.exec, 0, "the kernel executes trap") }
