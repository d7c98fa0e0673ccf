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

// Device is a GPU with the kernels that are loaded on it. The driver compiles a
// module once for all machines of a device.
type Device struct {
	device.GPU
	Info     device.Info   // as it was when the GPU was opened
	Patience time.Duration // how long a run waits for one piece of the GPU's work
	Products cublas.Choice // multiplies matrices; the zero value is plx's own kernels

	mu      sync.Mutex
	modules map[string]device.Module
}

// patience is long for a gradient, and short for a night.
const patience = 2 * time.Minute

// On returns a device without loaded kernels. It refuses a GPU or a driver that is older
// than the kernels demand.
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

// Available is the number of bytes of the GPU's memory that no process has allocated.
func (d *Device) Available() (uint64, error) {
	info, err := d.GPU.Info()
	return info.Free, err
}

// kernel finds a kernel. It loads the kernel's module if it is the first of it.
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
	return nil, errors.New("this program has none of that name")
}

// pinned is pinned memory of n bytes.
func (d *Device) pinned(n int) ([]byte, error) {
	b, err := d.AllocHost(max(n, 1))
	if err != nil {
		return nil, fmt.Errorf("%d bytes of pinned memory: %w", n, err)
	}
	return b[:n], nil
}
