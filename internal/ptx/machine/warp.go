package machine

import (
	"fmt"
	"github.com/plx-run/plx/internal/ptx/device"
	"math/bits"
)

// A group is lanes of a warp at one place of the program.
type group struct {
	pc   int
	mask uint32
	wait bool // for other lanes at the instruction at pc
}

// A Warp runs 32 threads.
type Warp struct {
	block     *Block
	first     uint32 // index of lane 0's thread in the block
	registers [][Lanes]uint64
	written   []uint32 // lanes that wrote each register
	preds     []uint32 // lanes for which each predicate is true
	assigned  []uint32 // lanes that wrote each predicate
	local     [Lanes]*device.Region

	pc     int    // of the next instruction of the running group
	active uint32 // lanes of the running group
	exec   uint32 // lanes that execute the current instruction
	at     int    // pc of the current instruction
	limit  int    // pc at which another group may run or join
	others []group
	epoch  uint64 // how often lanes met since the last barrier
	halt   bool   // no group can run, or there is a fault
}

// start makes the warp run from the beginning.
func (w *Warp) start(threads uint32) {
	w.active = uint32(allMask)
	if threads < Lanes {
		w.active = 1<<threads - 1
	}
	w.pc, w.limit, w.others = 0, len(w.block.launch.Program.Code), w.others[:0]
	w.halt = false
	w.epoch = 0
}

// run executes instructions until all lanes wait or have left.
func (w *Warp) run() {
	code := w.block.launch.Program.Code
	var steps, threads uint64
	for !w.halt {
		l := &code[w.pc]
		w.at = w.pc
		w.pc++
		steps++
		w.exec = w.active
		if l.Guard >= 0 {
			w.exec = w.guarded(l)
		}
		if w.exec != 0 {
			threads += uint64(bits.OnesCount32(w.exec))
			l.Step.Run(w)
		}
		if w.pc >= w.limit && !w.halt {
			w.schedule()
		}
		if steps == 1<<16 {
			w.block.count(steps, threads)
			steps, threads = 0, 0
		}
	}
	w.block.count(steps, threads)
}

// guarded returns the active lanes for which a guard holds.
func (w *Warp) guarded(l *Line) uint32 {
	if missing := w.active &^ w.assigned[l.Guard]; missing != 0 {
		w.fail(device.Uninitialised, missing, 0, "the guard's predicate was never written")
		return 0
	}
	if l.Negate {
		return w.active &^ w.preds[l.Guard]
	}
	return w.active & w.preds[l.Guard]
}

// schedule joins groups at one place and chooses the one that runs next: the
// lowest place among those that do not wait.
func (w *Warp) schedule() {
	if w.active != 0 {
		w.others = append(w.others, group{pc: w.pc, mask: w.active})
	}
	w.join()
	next := -1
	for i, g := range w.others {
		if !g.wait && (next < 0 || g.pc < w.others[next].pc) {
			next = i
		}
	}
	if next < 0 {
		w.active, w.halt = 0, true
		return
	}
	w.pc, w.active = w.others[next].pc, w.others[next].mask
	w.others = append(w.others[:next], w.others[next+1:]...)
	w.limit = len(w.block.launch.Program.Code)
	for _, g := range w.others {
		if g.pc > w.pc {
			w.limit = min(w.limit, g.pc)
		}
	}
}

// join makes one group of groups at one place. It runs if any of them does.
func (w *Warp) join() {
	kept := w.others[:0]
	for _, g := range w.others {
		joined := false
		for i := range kept {
			if kept[i].pc == g.pc {
				kept[i] = group{g.pc, kept[i].mask | g.mask, kept[i].wait && g.wait}
				joined = true
			}
		}
		if !joined {
			kept = append(kept, g)
		}
	}
	w.others = kept
}

// jump moves the executing lanes to another place.
func (w *Warp) jump(to int) {
	if rest := w.active &^ w.exec; rest != 0 {
		w.others = append(w.others, group{pc: w.pc, mask: rest})
	}
	w.active = w.exec
	w.pc = to
	if to <= w.at && w.block.exhausted() {
		w.fail(device.StepLimit, w.exec, 0, fmt.Sprintf("the launch takes more than %d instructions of warps", w.block.launch.StepLimit))
		return
	}
	if len(w.others) > 0 {
		w.schedule()
	}
}

// leave ends the executing lanes.
func (w *Warp) leave() {
	w.active &^= w.exec
	if w.active == 0 {
		w.schedule()
	}
}

// wait parks the executing lanes at the current instruction.
func (w *Warp) wait() {
	w.others = append(w.others, group{pc: w.at, mask: w.exec, wait: true})
	w.active &^= w.exec
	if w.active == 0 {
		w.schedule()
	}
}

// waiting returns the lanes that wait, and where the first group of them waits.
func (w *Warp) waiting() (mask uint32, pc int) {
	for i, g := range w.others {
		if i == 0 {
			pc = g.pc
		}
		mask |= g.mask
	}
	return mask, pc
}

// resume lets the lanes that wait at a barrier go on behind it.
func (w *Warp) resume() {
	w.active, w.pc = w.others[0].mask, w.others[0].pc+1
	w.others = w.others[:0]
	w.limit = len(w.block.launch.Program.Code)
	w.halt = false
	w.epoch = 0
}

// alive returns the lanes that have not left.
func (w *Warp) alive() uint32 {
	mask := w.active
	for _, g := range w.others {
		mask |= g.mask
	}
	return mask
}

// missing returns the executing lanes for which a register was never written.
func (w *Warp) missing(register int) uint32 { return w.exec &^ w.written[register] }

// fail ends the launch with a fault of the first of some lanes.
func (w *Warp) fail(kind device.Kind, mask uint32, address uint64, what string) {
	w.halt = true
	lane := uint32(bits.TrailingZeros32(mask))
	w.block.fail(device.Fault{Kind: kind, Line: int(w.block.launch.Program.Code[w.at].Source),
		Thread: w.block.thread(w.first + lane), Address: address, What: what})
}

// unwritten is the fault of a register that was read and never written.
func (w *Warp) unwritten(register int) {
	w.fail(device.Uninitialised, w.missing(register), 0, "the instruction reads a register that was never written")
}

// blame is the fault of a group that waits where it cannot go on.
func (w *Warp) blame(kind device.Kind, g group, what string) {
	w.at = g.pc
	w.fail(kind, g.mask, 0, what)
}

// decide writes a predicate for the executing lanes.
func (w *Warp) decide(p int, yes uint32) {
	w.preds[p] = w.preds[p]&^w.exec | yes&w.exec
	w.assigned[p] |= w.exec
}

// truth returns the lanes for which a predicate, or its opposite, holds.
func (w *Warp) truth(t Truth) (uint32, bool) {
	if missing := w.exec &^ w.assigned[t.P]; missing != 0 {
		w.fail(device.Uninitialised, missing, 0, "the instruction reads a predicate that was never written")
		return 0, false
	}
	if t.Negate {
		return ^w.preds[t.P], true
	}
	return w.preds[t.P], true
}

// unwrittenOf is the fault of the first of some registers that was never written.
func (w *Warp) unwrittenOf(registers ...int) {
	for _, r := range registers {
		if w.missing(r) != 0 {
			w.unwritten(r)
			return
		}
	}
}

// meet ends the time in which lanes of the warp race with each other.
func (w *Warp) meet() { w.epoch++ }
