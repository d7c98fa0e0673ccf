package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/optimizer"
	"gorgonia.org/tensor"
)

// Updates say how a machine updates its fixed values by itself.
type Updates struct {
	// Rules are by fixed value. The first values are updated by their gradients,
	// the others by as many of the first outputs.
	Rules []optimizer.Settings
	// Block is how many elements of a gradient go into one sum of squares, for
	// Resident.Squares; 0 means that no norm is wanted.
	Block int
	// Limit is the largest norm of all gradients together, to which they are
	// scaled down; 0 means that there is none. It needs Block.
	Limit float64
}

// Resident are the fixed values of a machine that updates them by itself. They and
// what the optimiser keeps for them stay in the GPU's memory. The memory of the host
// is older, until Fetch or Values writes it. The methods of a nil Resident do nothing.
type Resident struct {
	machine *Machine
	updates Updates
	parts   []part // by fixed value
	base    device.Pointer
	room    room
	records []byte // pinned: the constants of all updates
	squares result // sums of squares of all gradients; no host memory if there are none
	loaded  bool   // the GPU has all values
	newer   struct{ values, slots bool }
}

// part is one fixed value.
type part struct {
	of    kernels.Type
	feed  *feed            // its memory on both sides
	kept  [][]byte         // by slot: the host's memory
	slots []device.Pointer // by slot
	step  optimizer.Step   // of the next run, or the last one
}

// room is where things lie in the memory of a Resident: the constants of updates
// first.
type room struct {
	verdict int // whether the loss is finite, a uint32
	squares int // float64
	slots   [][]int
	block
}

func (r *Resident) plan() (all room) {
	u, fixed := r.updates, r.machine.program.Fixed
	all.take(len(u.Rules) * kernels.ConstantsBytes)
	all.verdict, all.squares = all.take(4), all.take(8*r.sums(len(fixed)))
	for i, s := range u.Rules {
		var slots []int
		for range s.Slots() {
			slots = append(slots, all.take(fixed[i].Length()))
		}
		all.slots = append(all.slots, slots)
	}
	return all
}

// sums is how many sums of squares the first fixed values have.
func (r *Resident) sums(values int) (n int) {
	p := r.machine.program
	if r.updates.Block == 0 {
		return 0
	}
	for i := range min(values, len(p.Gradients)) {
		n += (p.Fixed[i].Size() + r.updates.Block - 1) / r.updates.Block
	}
	return n
}

// Reside makes the runs of a machine update its fixed values. Gradients and the
// outputs that values follow are not copied to the host, and no gradient is
// announced. A run whose loss is not finite updates nothing.
//
// The first run copies the values from the host. Later runs do not read them there.
// The error is a *MemoryError if there is no room for what the optimiser keeps.
func (m *Machine) Reside(u Updates) (*Resident, error) {
	if len(u.Rules) != len(m.program.Fixed) || !m.program.HasLoss || m.resident != nil {
		return nil, fmt.Errorf("%d rules for the %d values of a program", len(u.Rules), len(m.program.Fixed))
	}
	r := &Resident{machine: m, updates: u}
	if err := r.allocate(); err != nil {
		return nil, err
	}
	more, err := r.work()
	if err != nil {
		return nil, errors.Join(err, m.gpu.Free(r.base))
	}
	m.resident = r
	return r, m.extend(more, len(u.Rules)-len(m.program.Gradients))
}

func (r *Resident) allocate() error {
	m := r.machine
	r.room = r.plan()
	free, err := m.gpu.Available()
	if err != nil {
		return err
	}
	if uint64(r.room.size) > free {
		return &MemoryError{Want: uint64(r.room.size), Free: free}
	}
	if r.base, err = m.gpu.Alloc(r.room.size); err != nil {
		return err
	}
	if r.records, err = m.feeds.add(feed{at: r.base}, len(r.updates.Rules)*kernels.ConstantsBytes); err != nil {
		return err
	}
	if n := r.sums(len(r.updates.Rules)); n > 0 {
		if r.squares, err = m.newResult(r.at(r.room.squares), 0, 8*n); err != nil {
			return err
		}
	}
	for i, slots := range r.room.slots {
		p := part{of: kernelType(m.program.Fixed[i].Dtype), feed: &m.feeds.all[m.feeds.fixed+i]}
		for _, offset := range slots {
			p.slots = append(p.slots, r.at(offset))
		}
		r.parts = append(r.parts, p)
	}
	return nil
}

func (r *Resident) at(offset int) device.Pointer { return r.base + device.Pointer(offset) }

// kernelType is the type of kernels for floating-point numbers.
func kernelType(t tensor.Dtype) kernels.Type {
	if t == tensor.Float64 {
		return kernels.Float64
	}
	return kernels.Float32
}

// work is what comes after the last instruction: the check of the loss, squares of
// gradients, their norm, and updates.
func (r *Resident) work() (all []work, err error) {
	m := r.machine
	loss := m.program.Outputs[len(m.program.Outputs)-1]
	add := func(what string, v *compile.Value, o kernels.Operation, failed error, operands ...device.Pointer) {
		if err = cmp.Or(err, failed); err != nil {
			return
		}
		w := work{what: what, value: v}
		if w.launches, err = m.gpu.launches(o, addresses(operands)); err != nil {
			err = fmt.Errorf("%s: %w", w.label(), err)
		}
		all = append(all, w)
	}
	add("the check of ", loss, kernels.Finite(kernelType(loss.Dtype)), nil, r.at(r.room.verdict), m.places.of(loss))
	if r.updates.Block > 0 {
		for i, g := range m.program.Gradients {
			o, failed := kernels.SumsOfSquares(r.parts[i].of, g.Value.Size(), r.updates.Block)
			add("the squares of the gradient of ", m.program.Fixed[i], o, failed, r.at(r.room.squares+8*r.sums(i)), m.places.of(g.Value))
		}
		o, failed := kernels.Clip(r.sums(len(r.parts)), len(r.parts), cmp.Or(r.updates.Limit, math.Inf(1)))
		add("the norm of the gradient of ", loss, o, failed, r.base, r.at(r.room.squares))
	}
	for i, p := range r.parts {
		o, failed := kernels.Update(p.of, r.updates.Rules[i], m.program.Fixed[i].Size())
		operands := []device.Pointer{p.feed.at, m.places.of(r.source(i)), r.at(i * kernels.ConstantsBytes), r.at(r.room.verdict)}
		add("the update of ", m.program.Fixed[i], o, failed, append(operands, p.slots...)...)
	}
	return all, err
}

// source is what a fixed value is updated by.
func (r *Resident) source(i int) *compile.Value {
	p := r.machine.program
	if i < len(p.Gradients) {
		return p.Gradients[i].Value
	}
	return p.Outputs[i-len(p.Gradients)]
}

// Hold gives the host's memory of what the optimiser keeps for a fixed value, by
// slot. The first run copies it to the GPU, and Fetch writes it.
func (r *Resident) Hold(i int, slots [][]byte) { r.parts[i].kept = slots }

// Update sets with which numbers the next run updates a fixed value. With a norm, the
// run sets the scale.
func (r *Resident) Update(i int, s optimizer.Step) {
	p := &r.parts[i]
	p.step = s
	kernels.PutUpdateConstants(r.records[i*kernels.ConstantsBytes:], p.of, r.updates.Rules[i], s)
}

// Updated is with which numbers the last run updated a fixed value. With a norm, the
// scale is that of Update.
func (r *Resident) Updated(i int) optimizer.Step { return r.parts[i].step }

// Squares appends the sums of squares of a fixed value's gradient in the last run.
func (r *Resident) Squares(i int, into []float64) []float64 {
	return append(into, memory.View[float64](r.squares.host)[r.sums(i):r.sums(i+1)]...)
}

// begin prepares a run. Before the first one it copies all values to the GPU.
func (r *Resident) begin() error {
	if r == nil {
		return nil
	}
	r.newer.values, r.newer.slots = true, true
	if r.loaded {
		return nil
	}
	for i := range r.parts {
		p := &r.parts[i]
		if err := r.in(p, p.feed.at, p.feed.from); err != nil {
			return err
		}
		for k, slot := range p.slots {
			if err := r.in(p, slot, p.kept[k]); err != nil {
				return err
			}
		}
	}
	r.loaded = true
	return nil
}

// end copies what the host wants of a run besides the outputs.
func (r *Resident) end() error {
	if r == nil || r.squares.host == nil {
		return nil
	}
	return r.machine.send(&r.squares)
}

// in copies from the host's memory, by way of the part's pinned memory.
func (r *Resident) in(p *part, to device.Pointer, from []byte) error {
	copy(p.feed.host, from)
	if err := r.machine.feeds.stream.In(to, p.feed.host); err != nil {
		return err
	}
	return r.machine.settle(r.machine.feeds.stream)
}

// out copies to the host's memory.
func (r *Resident) out(p *part, to []byte, from device.Pointer) error {
	if err := r.machine.out.Out(p.feed.host, from); err != nil {
		return err
	}
	if err := r.machine.settle(r.machine.out); err != nil {
		return err
	}
	copy(to, p.feed.host)
	return nil
}

// Values writes the values to the memory that New was given, if the GPU's are newer.
func (r *Resident) Values() error {
	if r == nil || !r.newer.values {
		return nil
	}
	for i := range r.parts {
		p := &r.parts[i]
		if err := r.out(p, p.feed.from, p.feed.at); err != nil {
			return fmt.Errorf("copy the variables from the gpu: %w", err)
		}
	}
	r.newer.values = false
	return nil
}

// Fetch is Values, and also writes the memory of Hold.
func (r *Resident) Fetch() error {
	if err := r.Values(); err != nil || r == nil || !r.newer.slots {
		return err
	}
	for i := range r.parts {
		p := &r.parts[i]
		for k, slot := range p.slots {
			if err := r.out(p, p.kept[k], slot); err != nil {
				return fmt.Errorf("copy the optimiser's state from the gpu: %w", err)
			}
		}
	}
	r.newer.slots = false
	return nil
}

// Gradients writes the gradients of the last run to the caller's memory for each.
func (r *Resident) Gradients(memory func(i int) []byte) error {
	for i, g := range r.machine.program.Gradients {
		if err := r.out(&r.parts[i], memory(i), r.machine.places.of(g.Value)); err != nil {
			return fmt.Errorf("copy the gradients from the gpu: %w", err)
		}
	}
	return nil
}

// Bytes is the size of the GPU's memory besides the machine's own.
func (r *Resident) Bytes() int {
	if r == nil {
		return 0
	}
	return r.room.size
}

// close gives the memory back. The GPU must have done all work.
func (r *Resident) close() error {
	if r == nil {
		return nil
	}
	all := []error{r.machine.gpu.Free(r.base)}
	if r.squares.host != nil {
		all = append(all, r.squares.drop(r.machine.gpu))
	}
	return errors.Join(all...)
}
