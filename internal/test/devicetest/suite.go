// Package devicetest is a test suite for bindings of GPU drivers.
package devicetest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// Run tests a driver binding. The function open returns a GPU that only one
// test uses.
func Run(t *testing.T, open func(t *testing.T) device.GPU) {
	for name, test := range map[string]func(*testing.T, bench){
		"memory": testMemory, "modules": testModules, "launch": testLaunch, "two streams": testStreams, "graph": testGraph,
		"many goroutines": testGoroutines, "do": testDo,
	} {
		t.Run(name, func(t *testing.T) { test(t, bench{t, open(t)}) })
	}
}

// bench is a GPU under test. Its methods fail the test on an error.
type bench struct {
	testing.TB
	device.GPU
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

func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// pinned allocates pinned host memory for n numbers.
func (b bench) pinned(n int) []float32 {
	b.Helper()
	p, err := b.AllocHost(4 * n)
	b.must(err)
	return floats(p)
}

func (b bench) stream() device.Stream {
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

// finish waits until all work on a stream is done.
func (b bench) finish(s device.Stream) {
	b.Helper()
	e := b.event()
	b.must(s.Record(e))
	b.must(device.Await(e, patience.Limit))
	b.must(e.Close())
}

// sum returns the kernel that computes out = a + b.
func (b bench) sum() device.Kernel {
	b.Helper()
	k, err := b.elementwise().Kernel("binary_add_f32")
	b.must(err)
	return k
}

func (b bench) elementwise() device.Module {
	b.Helper()
	for _, m := range kernels.Modules() {
		if m.Name == "elementwise" {
			loaded, err := b.Load(m.PTX)
			b.must(err)
			return loaded
		}
	}
	b.Fatal("there is no module elementwise")
	return nil
}

// call returns the shape and parameters of a launch of the kernel sum for n
// elements.
func call(out, x, y device.Pointer, n int) (device.Shape, []byte) {
	o, err := kernels.Binary(kernels.Float32, "+", n, n, n)
	if err != nil {
		panic(err)
	}
	l := o.Launches[0]
	return device.Shape{Grid: l.Grid, Block: l.Block}, l.Params(uint64(out), uint64(x), uint64(y))
}

// isError fails the test unless err is a device.Error with the given code.
func isError(t testing.TB, err error, code int) {
	t.Helper()
	var refused *device.Error
	if !errors.As(err, &refused) || refused.Code != code {
		t.Errorf("the error is %v, want code %d", err, code)
	}
}

func testMemory(t *testing.T, b bench) {
	before, err := b.Info()
	b.must(err)
	if before.Name == "" || before.Major < 5 || before.Driver < 11000 || before.Total == 0 {
		t.Errorf("the device says of itself %+v", before)
	}
	p := b.alloc(4 << 20)
	if p%256 != 0 {
		t.Errorf("memory at %x is not aligned", p)
	}
	after, err := b.Info()
	b.must(err)
	if after.Free > before.Free-4<<20 {
		t.Errorf("%d bytes are free after 4 MiB were taken from %d", after.Free, before.Free)
	}
	b.must(b.Free(p))
	_, err = b.Alloc(int(before.Total) + 1<<20)
	isError(t, err, device.OutOfMemory)
	host, err := b.AllocHost(100)
	b.must(err)
	if len(host) != 100 {
		t.Errorf("%d bytes of pinned memory, want 100", len(host))
	}
	b.must(b.FreeHost(host))
}

func testModules(t *testing.T, b bench) {
	_, err := b.elementwise().Kernel("absent")
	isError(t, err, device.NotFound)
	if !strings.Contains(err.Error(), "absent") {
		t.Errorf("the error does not name the kernel: %v", err)
	}
	_, err = b.Load("this is no PTX")
	isError(t, err, device.InvalidPTX)
	if !strings.Contains(err.Error(), "line 1") {
		t.Errorf("the error does not name the line: %v", err)
	}
}

func testLaunch(t *testing.T, b bench) {
	const n = 1000
	x, y, s, k := b.alloc(4*n), b.alloc(4*n), b.stream(), b.sum()
	in, out := b.pinned(2*n), b.pinned(n)
	for i := range in {
		in[i] = float32(i)
	}
	b.must(s.In(x, bytesOf(in[:n])))
	b.must(s.In(y, bytesOf(in[n:])))
	shape, params := call(x, x, y, n)
	b.must(s.Launch(k, shape, params))
	clear(params) // changes nothing, because Launch has copied the parameters
	b.must(s.Out(bytesOf(out), x))
	b.finish(s)
	for i, got := range out {
		if want := float32(n + 2*i); got != want {
			t.Fatalf("element %d is %v, want %v", i, got, want)
		}
	}
	if s.Handle() == 0 {
		t.Error("the stream has no handle")
	}
	b.must(s.Close())
}

// LaunchAllocatesNothing fails the test if a kernel launch allocates Go
// memory. It measures several times and takes the smallest result, because
// other goroutines of the process may allocate too.
func LaunchAllocatesNothing(t *testing.T, g device.GPU) {
	b := bench{t, g}
	s, k, x := b.stream(), b.sum(), b.alloc(400)
	shape, params := call(x, x, x, 100)
	least := math.Inf(1)
	for range 5 {
		least = min(least, testing.AllocsPerRun(20, func() { b.must(s.Launch(k, shape, params)) }))
	}
	if least != 0 {
		t.Errorf("a launch allocates %v times", least)
	}
	b.finish(s)
}

// testStreams checks that a stream which has waited for an event sees the work
// that another stream did before the event.
func testStreams(t *testing.T, b bench) {
	const n, rounds = 64, 30
	x, y, k := b.alloc(4*n), b.alloc(4*n), b.sum()
	copies, compute := b.stream(), b.stream()
	in, out := b.pinned(n*rounds), b.pinned(n*rounds)
	copied, computed := b.event(), b.event()
	for round := range rounds {
		row := in[round*n : (round+1)*n]
		for i := range row {
			row[i] = float32(round)
		}
		b.must(copies.Wait(computed)) // wait until the last launch has read x
		b.must(copies.In(x, bytesOf(row)))
		b.must(copies.Record(copied))
		b.must(compute.Wait(copied))
		shape, params := call(y, x, x, n)
		b.must(compute.Launch(k, shape, params))
		b.must(compute.Out(bytesOf(out[round*n:(round+1)*n]), y))
		b.must(compute.Record(computed))
	}
	b.must(device.Await(computed, patience.Limit))
	for i, got := range out {
		if want := float32(2 * (i / n)); got != want {
			t.Fatalf("round %d gave %v, want %v", i/n, got, want)
		}
	}
}

func testGraph(t *testing.T, b bench) {
	const n = 64
	x, y, s, k := b.alloc(4*n), b.alloc(4*n), b.stream(), b.sum()
	in, zeros, out := b.pinned(n), b.pinned(n), b.pinned(n)
	for i := range in {
		in[i], zeros[i] = 1, 0
	}
	b.must(s.In(x, bytesOf(in)))
	b.must(s.In(y, bytesOf(zeros)))
	b.finish(s)
	g, err := s.Capture(func() error {
		shape, params := call(y, y, x, n)
		if err := s.Launch(k, shape, params); err != nil {
			return err
		}
		return s.Out(bytesOf(out), y)
	})
	b.must(err)
	b.finish(s)
	for range 5 {
		b.must(s.Replay(g))
	}
	b.finish(s)
	for i, got := range out {
		if got != 5 {
			t.Fatalf("element %d is %v after 5 replays, want 5", i, got)
		}
	}
	b.must(g.Close())
	gone := errors.New("gone")
	if _, err := s.Capture(func() error { return gone }); err != gone {
		t.Errorf("a capture that fails: %v", err)
	}
	b.must(s.In(x, bytesOf(in))) // executes at once instead of being captured, because the capture has ended
	b.finish(s)
}

// testDo checks that Do returns the error of the function that it calls.
func testDo(t *testing.T, b bench) {
	gone := errors.New("gone")
	if err := b.Do(func() error { return gone }); err != gone {
		t.Errorf("got %v", err)
	}
}

// testGoroutines makes calls from several threads, because every call must set
// the context of its thread.
func testGoroutines(t *testing.T, b bench) {
	k := b.sum()
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

func once(b bench, k device.Kernel, first float32) error {
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
	numbers := floats(host)
	for i := range numbers {
		numbers[i] = first + float32(i)
	}
	shape, params := call(x, x, x, n)
	for _, put := range []func() error{
		func() error { return s.In(x, host) },
		func() error { return s.Launch(k, shape, params) },
		func() error { return s.Out(host, x) },
		func() error { return s.Record(done) },
		func() error { return device.Await(done, time.Minute) },
	} {
		if err := put(); err != nil {
			return err
		}
	}
	for i, got := range numbers {
		if want := 2 * (first + float32(i)); got != want {
			return fmt.Errorf("from %v: element %d is %v, want %v", first, i, got, want)
		}
	}
	return nil
}
