package gpu

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/cpu"
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/device/cublas"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
)

// work is one instruction of the program, ready to run on the GPU or on the
// CPU.
type work struct {
	value    *compile.Value
	what     string // prefix of the value's label in errors, such as "the update of "; empty if the work computes the value
	needs    []int  // indices into feeds.all: copies to the GPU that must be done before this work
	ready    []int  // indices of gradients that are complete after this work
	launches []launch
	host     *hostWork       // not nil if the CPU computes the value
	call     *operation.Call // parameters of the run, such as Train; nil if the kernels are the same in training and evaluation
	train    bool            // value of call.Train when the field launches was set
}

// label returns the text by which errors name the work.
func (w *work) label() string { return w.what + w.value.Label() }

// detail returns the work's label and the names of its kernels, for errors.
func (w *work) detail() string {
	var names []string
	for _, l := range w.launches {
		names = append(names, l.name)
	}
	if len(names) == 0 {
		return w.label()
	}
	return fmt.Sprintf("%s (kernel %s)", w.label(), strings.Join(names, ", "))
}

// launch is one call of a kernel, or of cuBLAS for a matrix product.
type launch struct {
	name    string
	kernel  device.Kernel
	shape   device.Shape
	params  []byte
	product *cublas.Product // not nil if cuBLAS, and no kernel, computes a matrix product
}

// loader holds what New needs to build a Machine.
type loader struct {
	program    *compile.Program
	fixed      [][]byte // memory of the caller, in the order of program.Fixed
	lib        gorgonia.BLAS
	operations []kernels.Operation // kernels of each instruction, in the order of program.Instructions
	missing    []string            // for each instruction: why it has no GPU kernel; empty if it has one
}

// newLoader chooses the kernels of all instructions.
func newLoader(p *compile.Program, fixed [][]byte, lib gorgonia.BLAS) *loader {
	l := &loader{program: p, fixed: fixed, lib: lib}
	for _, in := range p.Instructions {
		o, err := kernelsOf(in.Value)
		why := ""
		if err != nil {
			why = err.Error()
		}
		l.operations, l.missing = append(l.operations, o), append(l.missing, why)
	}
	return l
}

// allocate plans the program's memory and allocates it on the GPU. It returns
// a *MemoryError if the GPU has too little free memory.
func (m *Machine) allocate(l *loader) error {
	scratch := m.gpu.workspace()
	for _, o := range l.operations {
		scratch = max(scratch, o.Scratch)
	}
	m.places = plan(l.program, scratch)
	free, err := m.gpu.Available()
	if err != nil {
		return err
	}
	if uint64(m.places.bytes) > free {
		return m.places.tooLarge(l.program, free)
	}
	base, err := m.gpu.Alloc(m.places.bytes)
	m.places.base = base
	return err
}

func (m *Machine) loadStreams(l *loader) (err error) {
	in, err := m.gpu.NewStream()
	if err != nil {
		return err
	}
	m.feeds = &feeds{gpu: m.gpu, stream: in}
	for _, s := range []*device.Stream{&m.compute, &m.out} {
		if *s, err = m.gpu.NewStream(); err != nil {
			return err
		}
	}
	m.products, err = m.gpu.multiplier(m.compute, m.places.base+device.Pointer(m.places.scratch))
	if err != nil {
		return err
	}
	m.finished, err = m.gpu.NewEvent()
	return err
}

// loadFeeds prepares the copies of inputs and fixed values to the GPU.
func (m *Machine) loadFeeds(l *loader) error {
	for _, v := range l.program.Inputs {
		host, err := m.feeds.add(feed{at: m.places.of(v)}, v.Length())
		if err != nil {
			return err
		}
		m.inputs = append(m.inputs, host)
	}
	m.feeds.fixed = len(m.feeds.all)
	for i, v := range l.program.Fixed {
		from := l.fixed[i]
		f := feed{at: m.places.of(v), from: from, fill: func(host []byte) bool { return update(host, from) }}
		if _, err := m.feeds.add(f, v.Length()); err != nil {
			return err
		}
	}
	m.labels = findLabels(l, m.inputs)
	return nil
}

// loadResults prepares the copies of gradients and outputs to the host.
func (m *Machine) loadResults(l *loader) error {
	after := make([]int, len(l.program.Gradients))
	for i, in := range l.program.Instructions {
		for _, g := range in.Ready {
			after[g] = i + 1
		}
	}
	for i, g := range l.program.Gradients {
		r, err := m.newResult(m.places.of(g.Value), after[i], g.Value.Length())
		if err != nil {
			return err
		}
		m.results = append(m.results, r)
	}
	for _, v := range l.program.Outputs {
		r, err := m.newResult(m.places.of(v), len(l.program.Instructions), v.Length())
		if err != nil {
			return err
		}
		m.outputs = append(m.outputs, r)
	}
	return nil
}

func (m *Machine) newResult(from device.Pointer, after, n int) (r result, err error) {
	r = result{from: from, after: after}
	if r.host, err = m.gpu.pinned(n); err != nil {
		return r, err
	}
	if r.computed, err = m.gpu.NewEvent(); err != nil {
		return r, err
	}
	r.copied, err = m.gpu.NewEvent()
	return r, err
}

// loadConstants computes the constants on the CPU. It copies to the GPU those
// constants that a run reads.
func (m *Machine) loadConstants(l *loader) error {
	at := map[*compile.Value][]byte{}
	place := func(v *compile.Value) {
		if r := v.Root; at[r] == nil {
			if at[r] = r.Data; r.Data == nil {
				at[r] = memory.Aligned(r.Length())
			}
		}
	}
	for _, v := range l.program.Constants {
		if v.Op.Kind == compile.Alias {
			continue
		}
		place(v)
		for _, in := range v.Inputs {
			place(in)
		}
		compute, err := cpu.Kernel(v, l.lib, at)
		if err == nil {
			err = compute()
		}
		if err != nil {
			return err
		}
	}
	all, most := constants(l.program), 0
	for _, v := range all {
		place(v)
		most = max(most, len(at[v]))
	}
	host, err := m.gpu.pinned(most)
	if err != nil {
		return err
	}
	m.places.staging = host
	for _, v := range all {
		if err := m.upload(v, at[v]); err != nil {
			return fmt.Errorf("%s: %w", v.Label(), err)
		}
	}
	return nil
}

// upload copies the contents b of value v to the GPU and waits until the copy
// is done.
func (m *Machine) upload(v *compile.Value, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	copy(m.places.staging, b)
	if err := m.feeds.stream.In(m.places.of(v), m.places.staging[:len(b)]); err != nil {
		return err
	}
	return m.settle(m.feeds.stream)
}

// loadWork makes the work of every instruction: its kernels, or its
// computation on the CPU.
func (m *Machine) loadWork(l *loader) error {
	first := map[device.Pointer]bool{} // GPU addresses of the copies for which an earlier instruction waits, so that later instructions need not wait
	for i, in := range l.program.Instructions {
		w := work{value: in.Value, ready: in.Ready}
		g := onGPU(in.Value)
		err := m.loadStream(in.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", in.Value.Label(), err)
		}
		for k := range m.feeds.all {
			if f := &m.feeds.all[k]; !first[f.at] && m.places.reads(in.Value, f.at) {
				first[f.at], w.needs = true, append(w.needs, k)
				f.read = true
			}
		}
		if g != nil && g.Call != nil {
			w.call, w.train = g.Call, g.Call.Train
		}
		if l.missing[i] != "" {
			w.host, err = cpuKernel(m.gpu, m.places, in.Value, l.missing[i], l.lib)
		} else {
			w.launches, err = m.launchesOf(in.Value, l.operations[i])
		}
		if err != nil {
			return fmt.Errorf("%s: %w", in.Value.Label(), err)
		}
		m.work = append(m.work, w)
	}
	m.segments = divide(m.work)
	return nil
}

// loadStream prepares the copy of a random number generator's state to the
// GPU, if instruction v draws random numbers. Each run makes this copy before
// it starts the instruction.
func (m *Machine) loadStream(v *compile.Value) error {
	if !random(v) {
		return nil
	}
	stream := onGPU(v).Stream
	_, err := m.feeds.add(feed{at: m.places.stream(v), fill: func(host []byte) bool {
		for i, word := range stream().Words() {
			binary.LittleEndian.PutUint32(host[4*i:], word)
		}
		return true
	}}, streamBytes)
	return err
}

// reads reports whether instruction v reads the value at an address of GPU
// memory.
func (s *places) reads(v *compile.Value, at device.Pointer) bool {
	for _, in := range v.Inputs {
		if s.of(in) == at {
			return true
		}
	}
	return random(v) && s.stream(v) == at
}

func (m *Machine) launchesOf(v *compile.Value, o kernels.Operation) ([]launch, error) {
	operands := []device.Pointer{m.places.of(v)}
	for _, in := range arguments(v) {
		operands = append(operands, m.places.of(in))
	}
	if random(v) && onGPU(v).Train() {
		operands = append(operands, m.places.stream(v))
	}
	if len(operands) != len(o.Operands) {
		return nil, fmt.Errorf("its kernel takes the operands %v, but the operation has %d operands", o.Operands, len(operands))
	}
	operands = append(operands, m.places.base+device.Pointer(m.places.scratch))
	if o.Product != nil && m.products != nil {
		return m.gpu.product(v, *o.Product, addresses(operands))
	}
	return m.gpu.launches(o, addresses(operands))
}

// addresses converts GPU pointers to the integers that kernels take as
// parameters.
func addresses(all []device.Pointer) (numbers []uint64) {
	for _, at := range all {
		numbers = append(numbers, uint64(at))
	}
	return numbers
}
