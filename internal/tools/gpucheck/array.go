package main

import (
	"math/rand/v2"
	"unsafe"

	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// array are numbers on the GPU and in pinned memory of the host.
type array struct {
	at      device.Pointer
	host    []byte
	singles []float32 // host; nil for float64
	doubles []float64 // host; nil for float32
}

// array makes an array with unknown contents.
func (b *bench) array(n int, t kernels.Type) *array {
	a := &array{at: b.alloc(n * t.Size()), host: b.host(n * t.Size())}
	switch {
	case b.err != nil:
	case t == kernels.Float64:
		a.doubles = unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(a.host))), n)
	default:
		a.singles = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(a.host))), n)
	}
	return a
}

// noise makes an array of n normally distributed numbers, also on the GPU.
func (b *bench) noise(seed uint64, n int, t kernels.Type) *array {
	a, random := b.array(n, t), rand.New(rand.NewPCG(seed, uint64(n)))
	for i := range a.doubles {
		a.doubles[i] = random.NormFloat64()
	}
	for i := range a.singles {
		a.singles[i] = float32(random.NormFloat64())
	}
	b.do(func() error { return b.stream.In(a.at, a.host) })
	return a
}

// fetch brings the numbers to the host.
func (b *bench) fetch(a *array) {
	b.do(func() error { return b.stream.Out(a.host, a.at) })
	b.finish()
}

// of is element i on the host.
func (a *array) of(i int) float64 {
	if a.doubles != nil {
		return a.doubles[i]
	}
	return float64(a.singles[i])
}

func (a *array) len() int { return len(a.doubles) + len(a.singles) }

// unit is the roundoff of the numbers.
func (a *array) unit() float64 {
	if a.doubles != nil {
		return 0x1p-53
	}
	return 0x1p-24
}
