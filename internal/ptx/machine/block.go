package machine

import (
	"fmt"
	"math/bits"

	"github.com/plx-run/plx/internal/ptx/device"
)

// NewBlock returns a Block for launches like one, with the regions of the
// variables that the program names.
func NewBlock(l Launch, memory *device.Memory, variables []*device.Region) *Block {
	p := l.Program
	shared := p.Layout
	if l.Dynamic > 0 {
		shared = p.Dynamic + int(l.Dynamic)
	}
	b := &Block{launch: l, memory: memory, shared: device.NewRegion(0, shared), recent: make([]*device.Region, p.Accesses),
		written: make([]uint32, p.Registers), assigned: make([]uint32, p.Predicates)}
	for _, g := range p.Gaps {
		b.shared.Forbid(uint64(g[0]), uint64(min(g[1], shared)))
	}
	for _, all := range [][]Constant{p.Constants, p.Symbols} {
		for _, c := range all {
			b.written[c.Register] = allMask
		}
	}
	for _, s := range p.Specials {
		b.written[s.Register] = allMask
	}
	for _, all := range p.Truths {
		for _, r := range all {
			b.assigned[r] = allMask
		}
	}
	for first := uint32(0); first < l.Threads(); first += Lanes {
		b.warps = append(b.warps, b.newWarp(first, variables))
	}
	return b
}

// Fits reports whether the block can run a launch: one that differs only in
// its grid and parameters.
func (b *Block) Fits(l Launch, memory *device.Memory) bool {
	return b.memory == memory && b.launch.Program == l.Program && b.launch.Block == l.Block && b.launch.Dynamic == l.Dynamic
}

// Begin begins a launch. The caller holds the memory's lock until its end.
func (b *Block) Begin(l Launch, params []byte) {
	b.launch, b.fault, b.steps, b.threads = l, nil, 0, 0
	b.clock = device.Clock{Launch: b.memory.Tick()}
	b.params = device.NewRegion(0, len(params))
	copy(b.params.Data, params)
	b.params.Mark(0, b.params.Size)
	nowhere := &device.Region{} // what was reached before may be free
	for i := range b.recent {
		b.recent[i] = nowhere
	}
	for _, w := range b.warps {
		for _, s := range l.Program.Specials {
			for lane := range Lanes {
				w.registers[s.Register][lane] = s.value(w, uint32(lane))
			}
		}
	}
}

// newWarp makes a warp, with the registers that do not change.
func (b *Block) newWarp(first uint32, variables []*device.Region) *Warp {
	p := b.launch.Program
	w := &Warp{block: b, first: first, registers: make([][Lanes]uint64, p.Registers), written: make([]uint32, p.Registers),
		preds: make([]uint32, p.Predicates), assigned: make([]uint32, p.Predicates)}
	for _, c := range p.Constants {
		w.fix(c.Register, c.Bits)
	}
	for _, c := range p.Symbols {
		w.fix(c.Register, variables[c.Bits].Base)
	}
	for _, r := range p.Truths[1] {
		w.preds[r] = allMask
	}
	stride := align(p.Local, 64)
	data, written := make([]byte, stride*Lanes), make([]uint64, stride/64*Lanes)
	for i := range w.local {
		w.local[i] = &device.Region{Size: uint64(p.Local), Data: data[i*stride:][:stride], Written: written[i*stride/64:][:stride/64]}
	}
	return w
}

// fix gives all lanes of a register one value.
func (w *Warp) fix(register int, bits uint64) {
	for i := range w.registers[register] {
		w.registers[register][i] = bits
	}
}

// Run runs the block at a place of the grid.
func (b *Block) Run(index [3]uint32) *device.Fault {
	b.index = index
	b.shared.Clear()
	now := b.memory.Tick()
	b.clock = device.Clock{Launch: b.clock.Launch, Block: now, Interval: now}
	for _, w := range b.warps {
		w.reset()
	}
	for b.fault == nil {
		for _, w := range b.warps {
			if w.run(); b.fault != nil {
				return b.fault
			}
		}
		if !b.passBarrier() {
			break
		}
	}
	return b.fault
}

// reset makes the warp a warp of another block.
func (w *Warp) reset() {
	p := w.block.launch.Program
	copy(w.written, w.block.written)
	copy(w.assigned, w.block.assigned)
	for _, s := range p.Specials {
		if axis := s.blockAxis(); axis >= 0 {
			w.fix(s.Register, uint64(w.block.index[axis]))
		}
	}
	if p.Local > 0 {
		for _, l := range w.local {
			l.Clear()
		}
	}
	w.start(w.block.launch.Threads() - w.first)
}

// passBarrier lets all warps go on behind a barrier, if all threads wait
// there. It returns false if the block is done or has a fault.
func (b *Block) passBarrier() bool {
	at, waits := -1, false
	for _, w := range b.warps {
		_, pc := w.waiting()
		if len(w.others) > 0 && !waits {
			at, waits = pc, true
		}
	}
	if !waits {
		return false
	}
	for _, w := range b.warps {
		if !b.meets(w, at) {
			return false
		}
	}
	b.clock = device.Clock{Launch: b.clock.Launch, Block: b.clock.Block, Interval: b.memory.Tick()}
	for _, w := range b.warps {
		w.resume()
	}
	return true
}

// meets reports whether all threads of a warp wait at one barrier.
func (b *Block) meets(w *Warp, at int) bool {
	for _, g := range w.others {
		if _, ok := b.launch.Program.Code[g.pc].Step.(Barrier); !ok {
			w.blame(device.InactiveLane, g, "the mask names lanes that never execute the instruction")
			return false
		}
	}
	all := uint32(allMask)
	if n := b.launch.Threads() - w.first; n < Lanes {
		all = 1<<n - 1
	}
	mask, _ := w.waiting()
	if left := all &^ mask; left != 0 {
		b.fail(device.Fault{Kind: device.DivergentBarrier, Line: int(b.launch.Program.Code[at].Source), Thread: b.thread(w.first + uint32(bits.TrailingZeros32(left))),
			What: "the thread has left, and other threads of the block wait at the barrier"})
		return false
	}
	for _, g := range w.others {
		if g.pc != at {
			w.blame(device.DivergentBarrier, g, fmt.Sprintf("the thread waits here, and other threads of the block at the barrier of line %d", b.launch.Program.Code[at].Source))
			return false
		}
	}
	return true
}

// thread returns the tid of a thread by its index in the block.
func (b *Block) thread(i uint32) [3]uint32 {
	x, y := b.launch.Block[0], b.launch.Block[1]
	return [3]uint32{i % x, i / x % y, i / x / y}
}

// fail notes the first fault.
func (b *Block) fail(f device.Fault) {
	if b.fault == nil {
		f.Kernel, f.Block = b.launch.Kernel, b.index
		b.fault = &f
	}
}

// count notes executed instructions.
func (b *Block) count(warps, threads uint64) {
	b.steps += warps
	b.threads += threads
}

// Counted returns the executed instructions: each counts once for a warp, and
// once for each thread.
func (b *Block) Counted() (warps, threads uint64) { return b.steps, b.threads }

// exhausted reports whether the launch has taken too many steps.
func (b *Block) exhausted() bool { return b.steps > b.launch.StepLimit }

// align rounds n up to a multiple.
func align(n, to int) int { return (n + to - 1) / to * to }
