package gpu

import (
	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/cpu"
	"gorgonia.org/gorgonia"
)

// hostWork is an instruction that the CPU computes, because it has no GPU
// kernel.
type hostWork struct {
	why     string
	compute func() error
	inputs  []result // inputs of the operation, copied to CPU memory before the computation
	result  result   // result of the operation, copied to the GPU after the computation
}

func (h *hostWork) bytes() int {
	n := len(h.result.host)
	for _, r := range h.inputs {
		n += len(r.host)
	}
	return n
}

func (h *hostWork) run(m *Machine) error {
	for _, r := range h.inputs {
		if err := m.compute.Out(r.host, r.from); err != nil {
			return err
		}
	}
	if err := m.settle(m.compute); err != nil {
		return err
	}
	if err := h.compute(); err != nil {
		return err
	}
	if err := m.compute.In(h.result.from, h.result.host); err != nil {
		return err
	}
	return m.settle(m.compute) // wait until the result is copied to the GPU, because the next run overwrites the host memory h.result.host
}

// cpuKernel prepares the CPU computation of instruction v, which has no GPU
// kernel. why is the reason, for Machine.OnCPU.
func cpuKernel(d *Device, s *places, v *compile.Value, why string, lib gorgonia.BLAS) (*hostWork, error) {
	h, at := &hostWork{why: why}, map[*compile.Value][]byte{}
	for _, x := range v.Inputs {
		if at[x.Root] != nil {
			continue
		}
		b, err := d.pinned(x.Root.Length())
		if err != nil {
			return nil, err
		}
		at[x.Root] = b
		h.inputs = append(h.inputs, result{from: s.of(x.Root), host: b})
	}
	if at[v.Root] == nil {
		b, err := d.pinned(v.Root.Length())
		if err != nil {
			return nil, err
		}
		at[v.Root] = b
	}
	h.result = result{from: s.of(v.Root), host: at[v.Root]}
	var err error
	h.compute, err = cpu.Kernel(v, lib, at)
	return h, err
}
