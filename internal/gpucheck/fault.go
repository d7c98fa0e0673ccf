package main

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/executor/device"
)

//go:embed fault.ptx
var faulty []byte

// plant plants a fault and wants the driver's answer to it. The process must end
// after it. With "none" it wants the GPU to compute.
func plant(b *bench, what string, quick bool) error {
	switch what {
	case "illegal address":
		return plantAddress(b)
	case "endless work":
		return plantSpin(b, quick)
	}
	x := b.host(4)
	at := b.zeros(4)
	b.do(func() error { return launch(b, "write", uint64(at)) }, func() error { return b.stream.Out(x, at) })
	b.finish()
	if b.err == nil && binary.LittleEndian.Uint32(x) != 1 {
		return fmt.Errorf("a kernel that writes 1 has written %d", binary.LittleEndian.Uint32(x))
	}
	return b.err
}

// launch launches a kernel of fault.ptx with one thread.
func launch(b *bench, name string, params ...uint64) error {
	if b.modules["faulty"] == nil {
		m, err := b.gpu.Load(faulty)
		if err != nil {
			return err
		}
		b.modules["faulty"] = m
	}
	k, err := b.modules["faulty"].Kernel(name)
	if err != nil {
		return err
	}
	bytes := binary.LittleEndian.AppendUint64(nil, params[0])
	for _, p := range params[1:] {
		bytes = binary.LittleEndian.AppendUint32(bytes, uint32(p))
	}
	one := [3]uint32{1, 1, 1}
	return b.stream.Launch(k, device.Shape{Grid: one, Block: one}, bytes)
}

// plantAddress writes where no memory is. The wait and every later call must fail
// with the driver's code for that.
func plantAddress(b *bench) error {
	if err := launch(b, "write", 16); err != nil {
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

// plantSpin puts minutes of work on the stream. The wait must end after its limit.
func plantSpin(b *bench, quick bool) error {
	numbers, limit := uint64(1<<26), 2*time.Second
	if quick {
		numbers, limit = 20_000, 20*time.Millisecond
	}
	at := b.zeros(4)
	for range 100 {
		b.do(func() error { return launch(b, "spin", uint64(at), numbers) })
	}
	b.do(func() error { return b.stream.Record(b.done) })
	if b.err != nil {
		return b.err
	}
	begin := time.Now()
	err := device.Await(b.done, limit)
	var late *device.TimeoutError
	if !errors.As(err, &late) {
		return fmt.Errorf("a wait of %v for endless work returned %v", limit, err)
	}
	if waited := time.Since(begin); waited > limit+10*time.Second {
		return fmt.Errorf("a wait of %v for endless work took %v", limit, waited)
	}
	return nil
}
