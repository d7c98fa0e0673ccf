package gpu

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/device/cublas"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// Device is a GPU and the kernels that are loaded on it. Several Machines
// (running programs) may share a Device; the GPU's driver compiles each kernel
// module once for all of them.
type Device struct {
	device.GPU
	Info     device.Info   // data about the GPU, such as its free memory, from the time when the GPU was opened
	Patience time.Duration // how long a run waits for one piece of the GPU's work before it fails
	Products cublas.Choice // library for matrix products; the zero value means plx's own kernels

	mu      sync.Mutex
	modules map[string]device.Module
}

// patience is the default of Device.Patience. It is longer than the
// computation of any gradient should take. It is short enough that a job whose
// GPU hangs does not wait all night.
//
// TODO: no real GPU has run this; the value is a guess.
const patience = 2 * time.Minute

// On returns a Device for GPU g. It returns an error if the GPU or its driver
// is older than the kernels require.
func On(g device.GPU) (*Device, error) {
	info, err := g.Info()
	if err == nil {
		err = check(info)
	}
	if err != nil {
		return nil, err
	}
	return &Device{GPU: g, Info: info, Patience: patience, modules: map[string]device.Module{}}, nil
}

// Available returns the number of bytes of GPU memory that no process has
// allocated.
func (d *Device) Available() (uint64, error) {
	info, err := d.GPU.Info()
	return info.Free, err
}

// kernel returns the kernel with the given name. When a kernel of a module is
// first used, kernel loads the module on the GPU.
func (d *Device) kernel(module, name string) (device.Kernel, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.modules[module]
	if m == nil {
		var err error
		if m, err = d.load(module); err != nil {
			return 0, fmt.Errorf("load the kernels %s: %w", module, err)
		}
		d.modules[module] = m
	}
	return m.Kernel(name)
}

func (d *Device) load(module string) (device.Module, error) {
	for _, m := range kernels.Modules() {
		if m.Name == module {
			return d.Load(m.PTX)
		}
	}
	return nil, errors.New("the program contains no such module")
}

// pinned allocates n bytes of pinned host memory.
func (d *Device) pinned(n int) ([]byte, error) {
	b, err := d.AllocHost(max(n, 1))
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes of pinned memory: %w", n, err)
	}
	return b[:n], nil
}
