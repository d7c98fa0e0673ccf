package machine

import (
	"fmt"

	"github.com/plx-run/plx/internal/ptx/device"
)

// Space is a state space of addresses.
type Space int

// The state spaces.
const (
	Generic Space = iota // shared and local memory through windows, global memory elsewhere
	Global
	Shared
	Local
	Param
)

// An Access is what loads, stores and atomics have in common.
type Access struct {
	ID     int // of the access in its program
	Space  Space
	Base   int    // register with the address
	Offset uint64 // added to it
	Width  uint64 // bytes of an element
	Size   uint64 // bytes of all elements
	Parts  []int  // registers of the elements
	Extend [2]int // bits of a signed element, and of its register; zero for none

	Strong bool // volatile or relaxed: it does not race with others of its kind

	writes, atomic bool
}

func (a *Access) String() string {
	verb := "read"
	if a.atomic {
		verb = "atomic operation"
	} else if a.writes {
		verb = "write"
	}
	return fmt.Sprintf("%s of %d bytes of %s memory", verb, a.Size, [...]string{"generic", "global", "shared", "local", "parameter"}[a.Space])
}

// reach returns the memory of a lane's access. It fails for an access that a
// kernel must not make.
func (a *Access) reach(w *Warp, lane int) (*device.Region, uint64) {
	address := w.registers[a.Base][lane] + a.Offset
	r := w.block.recent[a.ID]
	offset := address - r.Base
	if a.Space > Global || offset >= r.Size || r.Size-offset < a.Size {
		if r, offset = a.find(w, lane, address); r == nil {
			return nil, 0
		}
	}
	if address&(a.Size-1) != 0 {
		w.fail(device.Misaligned, 1<<lane, address, fmt.Sprintf("%s at %#x, which is no multiple of %d", a, address, a.Size))
		return nil, 0
	}
	if r.Forbidden(offset, a.Size) {
		w.fail(device.OutOfBounds, 1<<lane, address, fmt.Sprintf("%s at %#x, behind the end of a variable", a, address))
		return nil, 0
	}
	bytes := (uint64(1)<<a.Size - 1) << (offset & 63)
	if !a.writes || a.atomic {
		if r.Written[offset>>6]&bytes != bytes {
			w.fail(device.Uninitialised, 1<<lane, address, fmt.Sprintf("%s at %#x, which was never written", a, address))
			return nil, 0
		}
	}
	if a.writes {
		if r.ReadOnly {
			w.fail(device.ReadOnly, 1<<lane, address, fmt.Sprintf("%s at %#x", a, address))
			return nil, 0
		}
		r.Written[offset>>6] |= bytes
	}
	if w.block.launch.Races && a.Space != Local && a.Space != Param && !r.ReadOnly && !a.trace(w, lane, r, offset) {
		return nil, 0
	}
	return r, offset
}

// trace fails if an access races with an earlier one.
func (a *Access) trace(w *Warp, lane int, r *device.Region, offset uint64) bool {
	c, kind := w.block.clock, device.GlobalRace
	switch {
	case r == w.block.shared:
		c.Launch, kind = c.Block, device.SharedRace
	case r == w.local[lane]:
		return true
	}
	who := device.Who{Thread: uint64(w.first) + uint64(lane), Epoch: w.epoch}
	found, races := r.Trace(offset, a.Size, device.Mode{Write: a.writes, Atomic: a.atomic || a.Strong}, c, who)
	if !races {
		return true
	}
	verb := "read"
	if found.Write {
		verb = "wrote"
	}
	other := fmt.Sprintf("thread %v", w.block.thread(uint32(found.Thread)))
	switch {
	case found.OtherBlock:
		other = "another block"
	case found.Several:
		other += " and others"
	}
	address := r.Base + offset
	w.fail(kind, 1<<lane, address, fmt.Sprintf("%s at %#x, which %s %s too, with no barrier between them", a, address, other, verb))
	return false
}

// find looks for the region of an address.
func (a *Access) find(w *Warp, lane int, address uint64) (*device.Region, uint64) {
	in, at := a.Space, address
	switch {
	case in == Generic && address-device.SharedWindow < device.WindowSize:
		in, at = Shared, address-device.SharedWindow
	case in == Generic && address-device.LocalWindow < device.WindowSize:
		in, at = Local, address-device.LocalWindow
	}
	r := w.block.params
	switch in {
	case Shared:
		r = w.block.shared
	case Local:
		r = w.local[lane]
	case Generic, Global:
		held, fault := w.block.memory.Hold(address, a.Size)
		if fault != nil {
			w.fail(fault.Kind, 1<<lane, address, a.String()+": "+fault.What)
			return nil, 0
		}
		w.block.recent[a.ID] = held
		return held, address - held.Base
	}
	if at >= r.Size || r.Size-at < a.Size {
		w.fail(device.OutOfBounds, 1<<lane, address, fmt.Sprintf("%s at %#x: it has %d bytes", a, address, r.Size))
		return nil, 0
	}
	return r, at
}

// A view is the region that the lanes of a warp most likely reach.
type view struct {
	region *device.Region // nil if nobody knows
	last   uint64         // offset of the last element that it holds
	tracer device.Tracer
	traced bool
}

// view looks once for what the lanes have in common.
func (a *Access) view(w *Warp) (v view) {
	r := w.block.recent[a.ID]
	switch {
	case a.Space == Shared:
		r = w.block.shared
	case a.Space > Shared:
		return v
	}
	if r.Size < a.Size || a.writes && (r.ReadOnly || r.HasGaps()) || a.Strong {
		return v
	}
	v.region, v.last = r, r.Size-a.Size
	if v.traced = w.block.launch.Races && !r.ReadOnly; v.traced {
		c := w.block.clock
		if a.Space == Shared {
			c.Launch = c.Block
		}
		var quick bool
		if v.tracer, quick = r.Tracer(c, device.Who{Thread: uint64(w.first), Epoch: w.epoch}); !quick {
			v.region = nil
		}
	}
	return v
}

// at is reach, and quick if a lane reaches the view without a mistake.
func (a *Access) at(w *Warp, v *view, lane int) (*device.Region, uint64) {
	r := v.region
	if r == nil {
		return a.reach(w, lane)
	}
	offset := w.registers[a.Base][lane] + a.Offset - r.Base
	if offset > v.last || offset&(a.Size-1) != 0 {
		return a.reach(w, lane)
	}
	bytes := (uint64(1)<<a.Size - 1) << (offset & 63)
	written := &r.Written[offset>>6]
	if a.writes {
		if v.traced && !v.tracer.Write(offset, a.Size, uint64(lane)) {
			return a.reach(w, lane)
		}
		*written |= bytes
		return r, offset
	}
	if *written&bytes != bytes || v.traced && !v.tracer.Read(offset, a.Size, uint64(lane)) {
		return a.reach(w, lane)
	}
	return r, offset
}
