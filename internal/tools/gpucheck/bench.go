package main

import (
	"time"

	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/device/cuda"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// patience is how long the bench waits for work of the GPU.
const patience = 30 * time.Second

// bench is a GPU under measurement, with one stream. After a call of it has failed,
// all others do nothing, and err is the cause.
type bench struct {
	gpu     device.GPU
	stream  device.Stream
	done    device.Event
	modules map[string]device.Module
	least   time.Duration // for which work is repeated
	memory  []device.Pointer
	pinned  [][]byte
	err     error
}

func openBench(quick bool) (*bench, error) {
	g, err := cuda.Open(0)
	if err != nil {
		return nil, err
	}
	b := &bench{gpu: g, modules: map[string]device.Module{}, least: 100 * time.Millisecond}
	if quick {
		b.least = 0
	}
	b.do(func() error { b.stream, err = g.NewStream(); return err })
	b.do(func() error { b.done, err = g.NewEvent(); return err })
	return b, b.err
}

// do calls each function unless a call has failed.
func (b *bench) do(all ...func() error) {
	for _, f := range all {
		if b.err == nil {
			b.err = f()
		}
	}
}

// finish waits for all work of the stream.
func (b *bench) finish() {
	b.do(func() error { return b.stream.Record(b.done) }, func() error { return device.Await(b.done, patience) })
}

// time puts work on the stream until it takes long enough, and returns the time of
// one put. The first put is not counted.
func (b *bench) time(put func() error) time.Duration {
	b.repeat(put, 1)
	for n := 1; b.err == nil; n *= 2 {
		begin := time.Now()
		b.repeat(put, n)
		if spent := time.Since(begin); spent >= b.least {
			return spent / time.Duration(n)
		}
	}
	return 0
}

func (b *bench) repeat(put func() error, n int) {
	for range n {
		b.do(put)
	}
	b.finish()
}

// measure measures work.
func (b *bench) measure(w work, put func() error) figure {
	amount, unit := w.amount()
	return figure{What: w.What, Ms: b.time(put).Seconds() * 1000, Work: amount, Unit: unit}
}

// alloc returns memory that is kept until clear.
func (b *bench) alloc(n int) (p device.Pointer) {
	b.do(func() (err error) { p, err = b.gpu.Alloc(max(n, 8)); return err })
	if b.err == nil {
		b.memory = append(b.memory, p)
	}
	return p
}

// host returns pinned memory that is kept until clear.
func (b *bench) host(n int) (host []byte) {
	b.do(func() (err error) { host, err = b.gpu.AllocHost(max(n, 8)); return err })
	if b.err == nil {
		b.pinned = append(b.pinned, host)
		host = host[:n]
	}
	return host
}

// clear gives all memory back, after the work of the stream.
func (b *bench) clear() {
	b.finish()
	for _, p := range b.memory {
		b.do(func() error { return b.gpu.Free(p) })
	}
	for _, h := range b.pinned {
		b.do(func() error { return b.gpu.FreeHost(h) })
	}
	b.memory, b.pinned = nil, nil
}

// zeros is memory of n bytes that are 0.
func (b *bench) zeros(n int) device.Pointer {
	p := b.alloc(n + 3)
	if n > 0 {
		b.do(b.prepare(kernels.Fill(kernels.Float32, 0, (n+3)/4))(p).put)
	}
	return p
}

// record makes a graph of work.
func (b *bench) record(put func() error) (g device.Graph) {
	b.do(func() (err error) { g, err = b.stream.Capture(put); return err })
	return g
}

// prepared is an operation with its kernels.
type prepared struct {
	stream  device.Stream
	kernels []device.Kernel
	shapes  []device.Shape
	params  [][]byte
}

// prepare loads the kernels of an operation and allocates its scratch memory. What it
// returns takes the operands.
func (b *bench) prepare(o kernels.Operation, err error) func(operands ...device.Pointer) *prepared {
	b.do(func() error { return err })
	return func(operands ...device.Pointer) *prepared {
		var addresses []uint64
		for _, p := range append(operands, b.alloc(o.Scratch)) {
			addresses = append(addresses, uint64(p))
		}
		r := &prepared{stream: b.stream}
		for _, l := range o.Launches {
			r.kernels = append(r.kernels, b.kernel(l.Module, l.Kernel))
			r.shapes = append(r.shapes, device.Shape{Grid: l.Grid, Block: l.Block})
			r.params = append(r.params, l.Params(addresses...))
		}
		return r
	}
}

func (b *bench) kernel(module, name string) (k device.Kernel) {
	for _, m := range kernels.Modules() {
		if m.Name == module && b.modules[module] == nil {
			b.do(func() (err error) { b.modules[module], err = b.gpu.Load(m.PTX); return err })
		}
	}
	b.do(func() (err error) { k, err = b.modules[module].Kernel(name); return err })
	return k
}

// put launches the operation.
func (r *prepared) put() error {
	for i, k := range r.kernels {
		if err := r.stream.Launch(k, r.shapes[i], r.params[i]); err != nil {
			return err
		}
	}
	return nil
}
