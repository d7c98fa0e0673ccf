package gpu

import (
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/device/cublas"
	"gorgonia.org/gorgonia"
)

// Machine runs one compiled program on a GPU. It may be used by one goroutine
// at a time.
type Machine struct {
	gpu      *Device
	program  *compile.Program
	resident *Resident // state of updates on the GPU; nil unless Reside was called
	places   *places
	feeds    *feeds
	inputs   [][]byte // pinned host memory, in the order of program.Inputs
	labels   labels   // class numbers that each run checks before it copies them to the GPU
	work     []work   // one entry for each instruction of the program; after a call of Reside, entries for the updates of variables follow
	segments []segment
	results  []result // gradients, in the order of program.Gradients
	outputs  []result // values in the order of program.Outputs
	compute  device.Stream
	products *cublas.Handle // cuBLAS handle on the stream compute; nil if plx's own kernels multiply matrices
	out      device.Stream
	finished device.Event // event that method settle records and waits for
	sent     []int        // indices of gradients whose copy to the host the current run has started, in the order of the copies
	arrived  int          // number of gradients in sent that the caller has received
	checked  bool         // true once the first run, which waits after each operation, has succeeded
	records  bool         // true until an attempt to record a CUDA graph fails
	settled  int          // number of instructions of the current run that are known to be done, for error messages
}

// result is a value that a run copies from the GPU to the host.
type result struct {
	from     device.Pointer
	after    int    // number of instructions that must be done before the value is computed
	host     []byte // pinned host memory for the copy
	computed device.Event
	copied   device.Event
	stays    bool // true if the value stays on the GPU and is not copied
}

// drop frees the result's pinned host memory and its events.
func (r *result) drop(d *Device) error {
	return errors.Join(d.FreeHost(r.host), r.computed.Close(), r.copied.Close())
}

// New loads a program on GPU d: it allocates memory, compiles the kernels and
// copies the constants. fixed is the memory of the fixed values, row-major;
// the caller may change its contents between runs. Operations without a GPU
// kernel use lib on the CPU.
//
// The error is a *MemoryError if the program does not fit into the GPU's
// memory.
func New(p *compile.Program, fixed [][]byte, lib gorgonia.BLAS, d *Device) (*Machine, error) {
	m := &Machine{gpu: d, program: p, records: true}
	l := newLoader(p, fixed, lib)
	for _, step := range []func(*loader) error{m.allocate, m.loadStreams, m.loadFeeds, m.loadResults, m.loadConstants, m.loadWork} {
		if err := step(l); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Input returns the host memory of input i. The caller fills it before a run.
func (m *Machine) Input(i int) []byte { return m.inputs[i] }

// Output returns the host memory of output i, which is valid until the next
// run.
func (m *Machine) Output(i int) []byte { return m.outputs[i].host }

// Renew copies bytes [from, to) of fixed value i from the caller's memory to
// the GPU. The copy overlaps with the GPU's work. The next run waits for the
// copy before the first operation that reads the value. The next run also
// copies changed values for which Renew was not called.
//
// Call Renew only after the current run has called ready for the value's
// gradient. Several goroutines may call Renew at once for different bytes,
// until the next run begins.
func (m *Machine) Renew(i, from, to int) { m.feeds.renew(i, from, to) }

// OnCPU returns the operations that run on the CPU because they have no GPU
// kernel. Each text gives the reason and the number of bytes that a run copies
// for the operation.
func (m *Machine) OnCPU() (all []string) {
	for _, w := range m.work {
		if w.host != nil {
			all = append(all, fmt.Sprintf("%s (%s, copies %s)", w.value.Label(), w.host.why, size(uint64(w.host.bytes()))))
		}
	}
	return all
}

// Bytes returns the number of bytes of GPU memory that the program uses.
func (m *Machine) Bytes() int { return m.places.bytes + m.resident.Bytes() }

// Run computes every instruction. It writes gradient i to gradients[i], and
// calls ready(i), if ready is not nil, once the gradient is complete. An error
// names the operations that may have failed.
func (m *Machine) Run(gradients [][]byte, ready func(i int)) error {
	if ready == nil {
		ready = func(int) {}
	}
	m.sent, m.arrived, m.settled = m.sent[:0], 0, 0
	d := delivery{gradients, ready}
	if err := m.labels.check(); err != nil {
		return err
	}
	if err := m.adapt(); err != nil {
		return err
	}
	if err := errors.Join(m.resident.begin(), m.feeds.copyIn(!m.checked)); err != nil {
		return fmt.Errorf("copy to the gpu: %w", err)
	}
	for i := range m.segments {
		until, err := m.put(&m.segments[i])
		if err == nil {
			err = m.deliver(d, false)
		}
		if err != nil {
			return m.fault(err, until)
		}
	}
	if err := m.end(d); err != nil {
		return m.fault(err, len(m.work))
	}
	return nil
}

// adapt replaces kernels that differ between training and evaluation, such as
// dropout's, if the mode has changed since the last run.
func (m *Machine) adapt() error {
	changed := false
	for i := range m.work {
		w := &m.work[i]
		if w.call == nil || w.call.Train == w.train {
			continue
		}
		o, err := kernelsOf(w.value)
		if err != nil {
			return fmt.Errorf("%s: %w", w.value.Label(), err)
		}
		all, err := m.launchesOf(w.value, o)
		if err != nil {
			return fmt.Errorf("%s: %w", w.value.Label(), err)
		}
		w.launches, w.train, changed = all, w.call.Train, true
	}
	if changed {
		return m.forget()
	}
	return nil
}

// run puts the kernels of one instruction on the compute stream, or computes
// the instruction on the CPU.
func (m *Machine) run(w *work) error {
	if w.host != nil {
		return w.host.run(m)
	}
	for i := range w.launches {
		if err := w.launches[i].put(m.compute, m.products); err != nil {
			return err
		}
	}
	return nil
}

// send starts the copy of a result to the host, after the GPU has computed the
// result.
func (m *Machine) send(r *result) error {
	if err := m.compute.Record(r.computed); err != nil {
		return err
	}
	if err := m.out.Wait(r.computed); err != nil {
		return err
	}
	if err := m.out.Out(r.host, r.from); err != nil {
		return err
	}
	return m.out.Record(r.copied)
}

// settle waits until all work of stream s is done, for at most the device's
// Patience.
func (m *Machine) settle(s device.Stream) error {
	if err := s.Record(m.finished); err != nil {
		return err
	}
	return device.Await(m.finished, m.gpu.Patience)
}

// delivery says where a run writes its gradients (in the caller's memory), and
// which function it calls for each complete gradient.
type delivery struct {
	gradients [][]byte
	ready     func(i int)
}

// deliver copies the gradients that have arrived on the host into the caller's
// memory, and calls ready for each. If the parameter all is true, deliver
// first waits for every gradient whose copy was started.
func (m *Machine) deliver(d delivery, all bool) error {
	for m.arrived < len(m.sent) {
		i := m.sent[m.arrived]
		r := &m.results[i]
		if done, err := r.copied.Done(); err != nil {
			return err
		} else if !done && !all {
			return nil
		}
		if err := device.Await(r.copied, m.gpu.Patience); err != nil {
			return err
		}
		m.arrived++
		m.settled = max(m.settled, r.after)
		copy(d.gradients[i], r.host)
		d.ready(i)
	}
	return nil
}

// end copies the outputs to the host and waits for the rest of the run.
func (m *Machine) end(d delivery) error {
	for i := range m.outputs {
		if m.outputs[i].stays {
			continue
		}
		if err := m.send(&m.outputs[i]); err != nil {
			return err
		}
	}
	if err := errors.Join(m.resident.end(), m.deliver(d, true)); err != nil {
		return err
	}
	for _, s := range []device.Stream{m.compute, m.out} {
		if err := m.settle(s); err != nil {
			return err
		}
	}
	m.checked = true
	return nil
}

// fault adds to a GPU error the names of the operations that may have caused
// the error. These are operations that the run has started and that are not
// known to be done. The parameter put is the number of operations started.
func (m *Machine) fault(err error, put int) error {
	first, last := m.settled, put-1
	if first >= last {
		return fmt.Errorf("%s: %w", m.work[last].detail(), err)
	}
	return fmt.Errorf("%s, or one of the %d operations after it until %s: %w",
		m.work[first].detail(), last-first, m.work[last].detail(), err)
}

// extend appends work, such as updates of variables, to the program. From then
// on, the fixed values (variables) and all gradients stay on the GPU after a
// run. So do the first outputs; the parameter outputs is their number. The
// first operation of a run waits for all copies to the GPU, and later
// operations wait for none, so that the whole run can be one CUDA graph.
func (m *Machine) extend(more []work, outputs int) error {
	for i := range m.work {
		m.work[i].needs, m.work[i].ready = nil, nil
	}
	m.work = append(m.work, more...)
	m.work[0].needs = m.feeds.keep()
	all := []error{m.forget()}
	for _, r := range m.results {
		all = append(all, r.drop(m.gpu))
	}
	m.results = nil
	for i := range outputs {
		m.outputs[i].stays = true
	}
	return errors.Join(all...)
}

// Close frees the program's memory and streams.
func (m *Machine) Close() error {
	all := []error{m.settle(m.feeds.stream), m.forget()}
	if m.products != nil {
		all = append(all, m.products.Close())
	}
	all = append(all, m.gpu.Free(m.places.base), m.gpu.FreeHost(m.places.staging), m.resident.close())
	for _, s := range []device.Stream{m.compute, m.out} {
		all = append(all, s.Close())
	}
	all = append(all, m.feeds.close(), m.finished.Close())
	for _, r := range append(m.results, m.outputs...) {
		all = append(all, r.drop(m.gpu))
	}
	return errors.Join(all...)
}
