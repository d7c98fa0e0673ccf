package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// plant plants a fault and wants the driver's answer to it. The process must end
// after it. With "none" it wants the GPU to compute.
func plant(b *bench, what string, quick bool) error {
	switch what {
	case "illegal address":
		return plantAddress(b)
	case "endless work":
		return plantSpin(b, quick)
	}
	x, at := b.host(4), b.alloc(4)
	b.do(func() error { return b.fill(at) }, func() error { return b.stream.Out(x, at) })
	b.finish()
	if b.err == nil && math.Float32frombits(binary.LittleEndian.Uint32(x)) != 1 {
		return fmt.Errorf("a kernel that writes 1 has written %x", x)
	}
	return b.err
}

// fill launches a kernel that writes 1 to an address.
func (b *bench) fill(at device.Pointer) error {
	o, err := kernels.Fill(kernels.Float32, 1, 1)
	if err != nil {
		return err
	}
	l := o.Launches[0]
	return b.stream.Launch(b.kernel(l.Module, l.Kernel), device.Shape{Grid: l.Grid, Block: l.Block}, l.Params(uint64(at)))
}

// plantAddress writes where no memory is. The wait and every later call must fail
// with the driver's code for that.
func plantAddress(b *bench) error {
	if err := b.fill(16); err != nil {
		return err
	}
	b.finish()
	_, later := b.gpu.Alloc(256)
	for what, err := range map[string]error{"the wait for a write to address 16": b.err, "a later call": later} {
		var refused *device.Error
		if !errors.As(err, &refused) || refused.Code != device.IllegalAddress {
			return fmt.Errorf("%s returned %v, want error %d", what, err, device.IllegalAddress)
		}
	}
	return nil
}

// plantSpin puts minutes of work on the stream: sums in which one thread adds the same
// number again and again. The wait must end after its limit.
func plantSpin(b *bench, quick bool) error {
	terms, limit := 1<<31-1, 2*time.Second
	if quick {
		terms, limit = 2_000_000, 20*time.Millisecond
	}
	o, err := kernels.Sum(kernels.Float32, []int{4}, nil)
	if err != nil {
		return err
	}
	// After three pointers the kernel takes these numbers: see REDUCED in reduce.cu.
	l, at := o.Launches[0], b.zeros(16)
	var params []byte
	for range 3 {
		params = binary.LittleEndian.AppendUint64(params, uint64(at))
	}
	for _, n := range []int{1, 1, 1, 0, 0, 0, terms, 1, 1, 0, 0, 0, 1, 0, 1, terms} {
		params = binary.LittleEndian.AppendUint32(params, uint32(n))
	}
	k := b.kernel(l.Module, l.Kernel)
	for range 100 {
		b.do(func() error { return b.stream.Launch(k, device.Shape{Grid: l.Grid, Block: l.Block}, params) })
	}
	b.do(func() error { return b.stream.Record(b.done) })
	if b.err != nil {
		return b.err
	}
	begin := time.Now()
	err = device.Await(b.done, limit)
	var late *device.TimeoutError
	if !errors.As(err, &late) {
		return fmt.Errorf("a wait of %v for endless work returned %v", limit, err)
	}
	if waited := time.Since(begin); waited > limit+10*time.Second {
		return fmt.Errorf("a wait of %v for endless work took %v", limit, waited)
	}
	return nil
}
