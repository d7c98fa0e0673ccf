//go:build cuda && linux

package cgocuda

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/plx-run/plx/trainer/executor/device"
	"gorgonia.org/cu"
)

// Open opens a GPU by its index among those that CUDA_VISIBLE_DEVICES leaves.
// The error says whether the driver is missing, too old, or has no such GPU.
func Open(index int) (device.GPU, error) {
	if err := load(); err != nil {
		return nil, fmt.Errorf("open NVIDIA's driver: %w", err)
	}
	g := &gpu{}
	if err := g.open(index); err != nil {
		return nil, fmt.Errorf("open gpu %d: %w", index, err)
	}
	return g, nil
}

// gpu is a device with its primary context.
type gpu struct {
	context cu.CUContext
	info    device.Info
}

func (g *gpu) open(index int) (err error) {
	var handle cu.Device
	info := &g.info
	for _, step := range []struct {
		call string
		do   func() error
	}{
		{"cuInit", start},
		{"cuDeviceGet", func() (err error) { handle, err = cu.GetDevice(index); return err }},
		{"cuDeviceGetName", func() (err error) { info.Name, err = handle.Name(); return err }},
		{"cuDeviceGetAttribute", func() (err error) { info.Major, err = handle.Attribute(cu.ComputeCapabilityMajor); return err }},
		{"cuDeviceGetAttribute", func() (err error) { info.Minor, err = handle.Attribute(cu.ComputeCapabilityMinor); return err }},
		{"cuDevicePrimaryCtxRetain", func() (err error) { g.context, err = handle.RetainPrimaryCtx(); return err }},
	} {
		if err := refused(step.call, step.do()); err != nil {
			return err
		}
	}
	info.Driver = cu.Version()
	return nil
}

func (g *gpu) Info() (device.Info, error) {
	i := g.info
	err := g.in("cuMemGetInfo", func() error {
		free, total, err := cu.MemInfo()
		i.Free, i.Total = uint64(free), uint64(total)
		return err
	})
	return i, err
}

// in calls the driver in the device's context. call names the driver's function.
func (g *gpu) in(call string, do func() error) error {
	return g.Do(func() error { return refused(call, do()) })
}

// Do makes the device's context current. The driver keeps the current context per
// thread, and Go moves goroutines between threads. CUContext.Unlock is not used: it
// waits for the GPU.
func (g *gpu) Do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(g.context); err != nil {
		return refused("cuCtxSetCurrent", err)
	}
	return f()
}

func (g *gpu) Alloc(n int) (p device.Pointer, err error) {
	err = g.in("cuMemAlloc", func() error {
		at, err := cu.MemAlloc(int64(n))
		p = device.Pointer(at)
		return err
	})
	return p, err
}

func (g *gpu) Free(p device.Pointer) error {
	return g.in("cuMemFree", func() error { return cu.MemFree(cu.DevicePtr(p)) })
}

func (g *gpu) AllocHost(n int) ([]byte, error) {
	var p unsafe.Pointer
	if err := g.in("cuMemHostAlloc", func() (err error) { p, err = allocHost(n); return err }); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), n), nil
}

func (g *gpu) FreeHost(b []byte) error {
	return g.in("cuMemFreeHost", func() error { return cu.MemFreeHost(unsafe.Pointer(unsafe.SliceData(b))) })
}

func (g *gpu) Load(ptx string) (device.Module, error) {
	complaint := make([]byte, 8192) // the last byte stays 0
	m := &module{gpu: g}
	err := g.in("cuModuleLoadDataEx", func() (err error) {
		m.handle, err = cu.LoadDataEx(ptx, &cu.JITErrorLogBuffer{Buffer: complaint[:len(complaint)-1]})
		return err
	})
	runtime.KeepAlive(complaint) // cu hands its address over as a number
	var failed *device.Error
	if errors.As(err, &failed) {
		text, _, _ := bytes.Cut(complaint, []byte{0})
		failed.Text = string(bytes.TrimSpace(text))
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// module implements device.Module.
type module struct {
	*gpu
	handle cu.Module
}

func (m *module) Kernel(name string) (device.Kernel, error) {
	var k cu.Function
	err := m.in("cuModuleGetFunction", func() (err error) { k, err = m.handle.Function(name); return err })
	if err != nil {
		return 0, fmt.Errorf("kernel %s: %w", name, err)
	}
	return *(*device.Kernel)(unsafe.Pointer(&k)), nil // cu.Function is the driver's pointer, and does not export it
}
