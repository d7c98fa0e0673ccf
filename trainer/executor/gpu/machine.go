package gpu

import (
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/device/cublas"
	"gorgonia.org/gorgonia"
)

// Machine runs one program. It is for one goroutine at a time.
type Machine struct {
	gpu      *Device
	program  *compile.Program
	resident *Resident // not nil if the machine updates its fixed values
	places   *places
	feeds    *feeds
	inputs   [][]byte // by program.Inputs, pinned
	labels   labels   // that a run checks
	work     []work   // by program.Instructions
	segments []segment
	results  []result // by program.Gradients
	outputs  []result // by program.Outputs
	compute  device.Stream
	products *cublas.Handle // on compute; nil: plx's own kernels multiply matrices
	out      device.Stream
	finished device.Event // the end of a run's copies to the host
	sent     []int        // gradients that the run has sent to the host, in order
	arrived  int          // number of them that have arrived
	checked  bool         // a run has waited after each operation
	records  bool         // the driver can record graphs, as far as is known
	settled  int          // number of instructions of the run that are known to be done
}

// result is a value that a run copies to the host.
type result struct {
	from     device.Pointer
	after    int    // number of instructions that are done when it is computed
	host     []byte // pinned
	computed device.Event
	copied   device.Event
	stays    bool // it is not copied
}

// drop gives back what the result needs on the host.
func (r *result) drop(d *Device) error {
	return errors.Join(d.FreeHost(r.host), r.computed.Close(), r.copied.Close())
}

// New loads a program: it allocates memory, compiles the kernels and copies what
// is known. fixed is the memory of the fixed values, row-major; the caller may
// change its contents between runs. Operations without a kernel use lib.
//
// The error is a *MemoryError if the program does not fit.
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

// Input is the memory of input i. The caller fills it before a run.
func (m *Machine) Input(i int) []byte { return m.inputs[i] }

// Output is the memory of output i, which is valid until the next run.
func (m *Machine) Output(i int) []byte { return m.outputs[i].host }

// Renew copies bytes [from, to) of fixed value i to the GPU, as the caller's memory
// has them now. The copy overlaps with what the GPU computes. The next run waits
// for it before the first operation that reads the value. What was not renewed, the
// next run copies by itself, if it has changed.
//
// All runs before must have announced the value's gradient. Several goroutines may
// renew different bytes, until the next run begins.
func (m *Machine) Renew(i, from, to int) { m.feeds.renew(i, from, to) }

// OnCPU names the operations that run on the CPU, because there is no kernel for
// them, each with the reason and the bytes that a run copies for it.
func (m *Machine) OnCPU() (all []string) {
	for _, w := range m.work {
		if w.host != nil {
			all = append(all, fmt.Sprintf("%s (%s, copies %s)", w.value.Label(), w.host.why, size(uint64(w.host.bytes()))))
		}
	}
	return all
}

// Bytes is the size of the GPU's memory that the program uses.
func (m *Machine) Bytes() int { return m.places.bytes + m.resident.Bytes() }

// Run computes every instruction. It writes gradient i to gradients[i], and
// calls ready(i), if ready is not nil, once the gradient is complete. An error
// names the value that failed.
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

// adapt chooses the kernels of operations that compute something else in training
// than in an evaluation.
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

// run computes an instruction.
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

// send copies a result to the host after it is computed.
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

// settle waits until all work of a stream is done.
func (m *Machine) settle(s device.Stream) error {
	if err := s.Record(m.finished); err != nil {
		return err
	}
	return device.Await(m.finished, m.gpu.Patience)
}

// delivery hands the gradients of a run to the caller.
type delivery struct {
	gradients [][]byte
	ready     func(i int)
}

// deliver hands over the gradients on their way that have arrived. With all it
// waits for each.
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

// end waits for what is left of a run.
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

// fault names the operations that an error of the GPU can come from: those that
// are not known to be done, of the first put.
func (m *Machine) fault(err error, put int) error {
	first, last := m.settled, put-1
	if first >= last {
		return fmt.Errorf("%s: %w", m.work[last].detail(), err)
	}
	return fmt.Errorf("%s, or one of the %d operations after it until %s: %w",
		m.work[first].detail(), last-first, m.work[last].detail(), err)
}

// extend adds work after the last instruction. Gradients and so many outputs stay on
// the GPU, and so do the fixed values. Only the first operation waits for feeds, so
// that all kernels can be one graph.
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

// Close gives the memory and the streams back.
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
