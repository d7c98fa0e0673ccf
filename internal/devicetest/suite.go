// Package devicetest is the suite that every binding of a GPU's driver passes.
package devicetest

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/memory"
)

//go:embed saxpy.ptx
var saxpy []byte

const soon = 20 * time.Second

// Run tests a binding. open opens a GPU that no other test uses.
func Run(t *testing.T, open func(t *testing.T) *device.GPU) {
	for name, test := range map[string]func(*testing.T, bench){
		"memory": testMemory, "modules": testModules, "launch": testLaunch, "two streams": testStreams, "graph": testGraph,
		"many goroutines": testGoroutines, "zero": testZero,
	} {
		t.Run(name, func(t *testing.T) { test(t, bench{t, open(t)}) })
	}
}

// bench is a GPU under test. Its methods fail the test.
type bench struct {
	testing.TB
	*device.GPU
}

func (b bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b bench) alloc(n int) device.Pointer {
	b.Helper()
	p, err := b.Alloc(n)
	b.must(err)
	return p
}

// pinned is pinned memory of numbers.
func (b bench) pinned(n int) []float32 {
	b.Helper()
	p, err := b.AllocHost(4 * n)
	b.must(err)
	return memory.View[float32](p)
}

func (b bench) stream() *device.Stream {
	b.Helper()
	s, err := b.NewStream()
	b.must(err)
	return s
}

func (b bench) event() device.Event {
	b.Helper()
	e, err := b.NewEvent()
	b.must(err)
	return e
}

// finish waits for all work of a stream.
func (b bench) finish(s *device.Stream) {
	b.Helper()
	e := b.event()
	b.must(s.Record(e))
	b.must(device.Await(e, soon))
	b.must(e.Close())
}

func (b bench) kernel(name string) device.Kernel {
	b.Helper()
	m, err := b.Load(saxpy)
	b.must(err)
	k, err := m.Kernel(name)
	b.must(err)
	return k
}

// call is a launch of saxpy.
func call(x, y device.Pointer, a float32, n int) (device.Shape, []byte) {
	p := binary.LittleEndian.AppendUint64(nil, uint64(x))
	p = binary.LittleEndian.AppendUint64(p, uint64(y))
	p = binary.LittleEndian.AppendUint32(p, math.Float32bits(a))
	p = binary.LittleEndian.AppendUint32(p, uint32(n))
	return device.Shape{Grid: [3]uint32{uint32(n+63) / 64, 1, 1}, Block: [3]uint32{64, 1, 1}}, p
}

// isError fails unless err is a refusal with a code.
func isError(t testing.TB, err error, code int) {
	t.Helper()
	var refused *device.Error
	if !errors.As(err, &refused) || refused.Code != code {
		t.Errorf("the error is %v, want code %d", err, code)
	}
}

func testMemory(t *testing.T, b bench) {
	if b.GPU.Name == "" || b.Major < 5 || b.Driver < 11000 || b.Total == 0 {
		t.Errorf("the device says of itself %+v", b.Info)
	}
	before, err := b.Available()
	b.must(err)
	p := b.alloc(4 << 20)
	if p%256 != 0 {
		t.Errorf("memory at %x is not aligned", p)
	}
	after, err := b.Available()
	b.must(err)
	if after > before-4<<20 {
		t.Errorf("%d bytes are free after 4 MiB were taken from %d", after, before)
	}
	b.must(b.Free(p))
	_, err = b.Alloc(int(b.Total) + 1<<20)
	isError(t, err, device.OutOfMemory)
	host, err := b.AllocHost(100)
	b.must(err)
	if len(host) != 100 {
		t.Errorf("%d bytes of pinned memory, want 100", len(host))
	}
	b.must(b.FreeHost(host))
}

func testModules(t *testing.T, b bench) {
	m, err := b.Load(saxpy)
	b.must(err)
	_, err = m.Kernel("absent")
	isError(t, err, device.NotFound)
	if !strings.Contains(err.Error(), "absent") {
		t.Errorf("the error does not name the kernel: %v", err)
	}
	b.must(m.Unload())
	_, err = b.Load([]byte(strings.Replace(string(saxpy), "fma.rn.f32", "frobnicate.f32", 1)))
	isError(t, err, device.InvalidPTX)
	if !strings.Contains(err.Error(), "35") {
		t.Errorf("the error does not name the line, 35: %v", err)
	}
}

func testLaunch(t *testing.T, b bench) {
	const n = 100
	x, y, s, k := b.alloc(4*n), b.alloc(4*n), b.stream(), b.kernel("saxpy")
	in, out := b.pinned(2*n), b.pinned(n)
	for i := range in {
		in[i] = float32(i)
	}
	b.must(s.In(x, memory.Bytes(in[:n])))
	b.must(s.In(y, memory.Bytes(in[n:])))
	shape, params := call(x, y, 3, n)
	b.must(s.Launch(k, shape, params))
	clear(params) // the launch has copied them
	b.must(s.Within(x, y, 4*n))
	b.must(s.Out(memory.Bytes(out), x))
	b.finish(s)
	for i, got := range out {
		if want := float32(3*i + n + i); got != want {
			t.Fatalf("element %d is %v, want %v", i, got, want)
		}
	}
	b.must(s.Close())
}

// LaunchAllocatesNothing fails if a launch allocates memory of this process. The
// interpreter does. Only the least of several counts is a launch's own: other goroutines
// of the process allocate too.
func LaunchAllocatesNothing(t *testing.T, g *device.GPU) {
	b := bench{t, g}
	s, k, x := b.stream(), b.kernel("saxpy"), b.alloc(400)
	b.must(s.Zero(x, 400))
	shape, params := call(x, x, 3, 100)
	least := math.Inf(1)
	for range 5 {
		least = min(least, testing.AllocsPerRun(20, func() { b.must(s.Launch(k, shape, params)) }))
	}
	if least != 0 {
		t.Errorf("a launch allocates %v times", least)
	}
	b.finish(s)
}

// Work of one stream that waits for an event sees what another stream did before.
func testStreams(t *testing.T, b bench) {
	const n, rounds = 64, 30
	x, y, k := b.alloc(4*n), b.alloc(4*n), b.kernel("saxpy")
	copies, compute := b.stream(), b.stream()
	in, out := b.pinned(n*rounds), b.pinned(n*rounds)
	copied, computed := b.event(), b.event()
	for round := range rounds {
		row := in[round*n : (round+1)*n]
		for i := range row {
			row[i] = float32(round)
		}
		b.must(copies.Wait(computed)) // x is read no longer
		b.must(copies.In(x, memory.Bytes(row)))
		b.must(copies.Record(copied))
		b.must(compute.Zero(y, 4*n))
		b.must(compute.Wait(copied))
		shape, params := call(x, y, 2, n)
		b.must(compute.Launch(k, shape, params))
		b.must(compute.Out(memory.Bytes(out[round*n:(round+1)*n]), y))
		b.must(compute.Record(computed))
	}
	b.must(device.Await(computed, soon))
	for i, got := range out {
		if want := float32(2 * (i / n)); got != want {
			t.Fatalf("round %d gave %v, want %v", i/n, got, want)
		}
	}
}

func testGraph(t *testing.T, b bench) {
	const n = 64
	x, y, s, k := b.alloc(4*n), b.alloc(4*n), b.stream(), b.kernel("saxpy")
	in, out := b.pinned(n), b.pinned(n)
	for i := range in {
		in[i] = 1
	}
	b.must(s.In(x, memory.Bytes(in)))
	b.must(s.Zero(y, 4*n))
	b.finish(s)
	b.must(s.Begin())
	shape, params := call(x, y, 1, n)
	b.must(s.Launch(k, shape, params))
	b.must(s.Out(memory.Bytes(out), y))
	g, err := s.End()
	b.must(err)
	b.finish(s)
	for range 5 {
		b.must(g.Replay(s))
	}
	b.finish(s)
	for i, got := range out {
		if got != 5 {
			t.Fatalf("element %d is %v after 5 replays, want 5", i, got)
		}
	}
	b.must(g.Close())
}

// Calls may come from any thread: each sets the context.
func testGoroutines(t *testing.T, b bench) {
	k := b.kernel("saxpy")
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			if err := once(b, k, float32(g)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func once(b bench, k device.Kernel, a float32) error {
	const n = 256
	s, err := b.NewStream()
	if err != nil {
		return err
	}
	x, err := b.Alloc(4 * n)
	if err != nil {
		return err
	}
	host, err := b.AllocHost(4 * n)
	if err != nil {
		return err
	}
	done, err := b.NewEvent()
	if err != nil {
		return err
	}
	numbers := memory.View[float32](host)
	for i := range numbers {
		numbers[i] = float32(i)
	}
	shape, params := call(x, x, a, n)
	for _, put := range []func() error{
		func() error { return s.In(x, host) },
		func() error { return s.Launch(k, shape, params) },
		func() error { return s.Out(host, x) },
		func() error { return s.Record(done) },
		func() error { return device.Await(done, soon) },
	} {
		if err := put(); err != nil {
			return err
		}
	}
	for i, got := range numbers {
		if want := float32(i) * (a + 1); got != want {
			return fmt.Errorf("%v times: element %d is %v, want %v", a, i, got, want)
		}
	}
	return nil
}

func testZero(t *testing.T, b bench) {
	x, s, out := b.alloc(400), b.stream(), b.pinned(100)
	b.must(s.Zero(x, 400))
	b.must(s.Out(memory.Bytes(out), x))
	b.finish(s)
	for i, got := range out {
		if got != 0 {
			t.Fatalf("element %d is %v", i, got)
		}
	}
}
