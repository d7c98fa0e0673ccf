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

// Updates describes how a machine (a program that runs on a GPU) updates its
// fixed values, the model's variables, on the GPU: see Machine.Reside.
type Updates struct {
	// Rules has one optimiser rule for each fixed value (a variable or running
	// statistic). The program's gradients update the first values. The
	// program's first outputs update the remaining values, one output each.
	Rules []optimizer.Settings
	// Block is the number of elements of a gradient that one sum of squares
	// covers, for Resident.Squares. 0 means that no norm is computed.
	Block int
	// Limit is the largest allowed norm of all gradients together; larger
	// gradients are scaled down to it. 0 means no limit. A limit requires a
	// Block other than 0.
	Limit float64
}

// Resident is the state of a machine (a program loaded onto a GPU) that
// updates its fixed values, such as variables, on the GPU. The values and the
// optimiser's state stay in GPU memory. The host's copy is out of date until
// Fetch or Values writes it. A nil Resident is valid, and begin, end, Values,
// Fetch, Bytes and close do nothing for it.
//
// TODO: no real GPU has run this. Updates with NVIDIA's driver are untested,
// and so is the speed of a whole run recorded as one graph.
type Resident struct {
	machine *Machine
	updates Updates
	parts   []part // one entry for each fixed value (variable)
	base    device.Pointer
	room    room
	records []byte // pinned host memory with the update constants of all values (kernels.PutUpdateConstants)
	squares result // sums of squares of all gradients; squares.host is nil if no norm is computed
	loaded  bool   // true once the first run has copied all values to the GPU
	newer   struct{ values, slots bool }
}

// part is one fixed value and its optimiser state.
type part struct {
	of    kernels.Type
	feed  *feed            // the fixed value's memory on the host and on the GPU
	kept  [][]byte         // host memory of the optimiser's state, one slice for each slot
	slots []device.Pointer // GPU addresses of the optimiser's state, one for each slot
	step  optimizer.Step   // learning rate and other numbers that Update last set
}

// room holds offsets in the GPU memory of a Resident, in bytes. The constants
// of the updates begin at offset 0.
type room struct {
	verdict int // offset of a uint32 that is 1 if the loss is finite and 0 if not
	squares int // offset of the sums of squares, which are float64
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

// sums returns how many sums of squares the gradients of the first fixed
// values (such as variables) have together. The parameter values is the number
// of these fixed values.
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

// Reside makes later runs of the machine update its fixed values (the model's
// variables) on the GPU. From then on, runs do not copy gradients to the host,
// nor outputs that replace values, and Run does not call ready. A run whose
// loss is not finite updates nothing.
//
// The first run copies the values from the host to the GPU; later runs do not.
// The error is a *MemoryError if the GPU has too little free memory for the
// optimiser's state.
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

// kernelType returns the kernels' type for a floating-point element type.
func kernelType(t tensor.Dtype) kernels.Type {
	if t == tensor.Float64 {
		return kernels.Float64
	}
	return kernels.Float32
}

// work returns the operations that follow the program's last instruction: the
// check that the loss is finite, the squares of the gradients, their norm, and
// the updates.
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

// source returns the value with which an update changes fixed value i (a
// variable or running statistic). It is the gradient of i, or one of the first
// outputs if i has no gradient.
func (r *Resident) source(i int) *compile.Value {
	p := r.machine.program
	if i < len(p.Gradients) {
		return p.Gradients[i].Value
	}
	return p.Outputs[i-len(p.Gradients)]
}

// Hold sets the host memory of the optimiser's state for fixed value i, one
// slice for each slot. The first run copies the state to the GPU, and Fetch
// writes it back.
func (r *Resident) Hold(i int, slots [][]byte) { r.parts[i].kept = slots }

// Update sets the learning rate and the other numbers with which the next run
// updates fixed value i. If Updates.Block is not 0, the run ignores the factor
// s.Scale: it computes the factor from the norm of the gradients.
func (r *Resident) Update(i int, s optimizer.Step) {
	p := &r.parts[i]
	p.step = s
	kernels.PutUpdateConstants(r.records[i*kernels.ConstantsBytes:], p.of, r.updates.Rules[i], s)
}

// Updated returns the numbers that Update last set for fixed value i. If
// Updates.Block is not 0, the run did not use the factor Scale in them: it
// computed the factor from the norm of the gradients.
func (r *Resident) Updated(i int) optimizer.Step { return r.parts[i].step }

// Squares appends the sums of squares of fixed value i's gradient in the last
// run.
func (r *Resident) Squares(i int, into []float64) []float64 {
	return append(into, memory.View[float64](r.squares.host)[r.sums(i):r.sums(i+1)]...)
}

// begin prepares a run. Before the first run, begin copies all fixed values
// and the optimiser's state to the GPU.
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

// end starts the copy of the sums of squares to the host.
func (r *Resident) end() error {
	if r == nil || r.squares.host == nil {
		return nil
	}
	return r.machine.send(&r.squares)
}

// in copies host memory (from) to a GPU address (to). The data passes through
// the pinned memory of p, a fixed value such as a variable.
func (r *Resident) in(p *part, to device.Pointer, from []byte) error {
	copy(p.feed.host, from)
	if err := r.machine.feeds.stream.In(to, p.feed.host); err != nil {
		return err
	}
	return r.machine.settle(r.machine.feeds.stream)
}

// out copies GPU memory at an address (from) to host memory (to). The data
// passes through the pinned memory of p, a fixed value such as a variable.
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

// Values copies the variables back to the host memory that New received, if
// the GPU has updated them since they were last copied.
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

// Fetch copies the fixed values back to the host, as Values does, and the
// optimiser's state to the memory that Hold set.
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

// Gradients copies the gradients of the last run to the host. The function
// memory returns the caller's memory for gradient i.
func (r *Resident) Gradients(memory func(i int) []byte) error {
	for i, g := range r.machine.program.Gradients {
		if err := r.out(&r.parts[i], memory(i), r.machine.places.of(g.Value)); err != nil {
			return fmt.Errorf("copy the gradients from the gpu: %w", err)
		}
	}
	return nil
}

// Bytes returns the size of the optimiser's state and constants in GPU memory,
// in bytes. The machine's own memory is not included.
func (r *Resident) Bytes() int {
	if r == nil {
		return 0
	}
	return r.room.size
}

// close frees the GPU memory. All work of the GPU must be done before.
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
