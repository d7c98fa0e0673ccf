// Package device is what the executor needs of a GPU, in 20 calls: memory, streams,
// modules and events. Two packages implement it by NVIDIA's driver: cuda without cgo,
// and cgocuda for programs that are built with the tag cu.
//
//	gpu, err := cuda.Open(0)
//	p, err := gpu.Alloc(1 << 20)
//	module, err := gpu.Load(ptx)
//	kernel, err := module.Kernel("add")
//	stream, err := gpu.NewStream()
//	err = stream.In(p, pinned)
//	err = stream.Launch(kernel, device.Shape{Grid: [3]uint32{4, 1, 1}, Block: [3]uint32{256, 1, 1}}, params)
//	err = stream.Record(done)
//	err = device.Await(done, time.Minute)
//
// Work that is put on a stream runs later, in the order of the stream. Only
// events order the work of two streams, or tell the host that work is done. No
// call waits for the GPU: a GPU that has fallen off the bus would never answer.
// Await asks an event again and again, for a bounded time.
//
// The calls of a GPU may come from any goroutine. Those of one stream must
// not come from two at once.
package device

import (
	"fmt"
	"io"
	"time"
)

// Pointer is an address in a GPU's memory.
type Pointer uint64

// Kernel is a function of a module that a stream can launch.
type Kernel uintptr

// Info describes a GPU and its driver.
type Info struct {
	Name         string
	Major, Minor int    // compute capability
	Through      string `json:",omitempty"` // the Go package that calls the driver, if plx does not by itself
	Driver       int    // newest CUDA version that the driver knows: 12040 for 12.4
	Total        uint64 // bytes of memory
	Free         uint64 // bytes of memory that no process has allocated
}

// CUDA writes the driver's CUDA version as 12.4.
func (i Info) CUDA() string { return fmt.Sprintf("%d.%d", i.Driver/1000, i.Driver%1000/10) }

// GPU is an opened device.
type GPU interface {
	Info() (Info, error)
	// Alloc returns n bytes, n > 0, aligned to 256. Their contents are undefined.
	Alloc(n int) (Pointer, error)
	// Free gives memory back. Nothing that was put on a stream may still use it.
	Free(p Pointer) error
	// AllocHost returns pinned memory of this machine: the GPU reads and writes it by
	// itself, and streams copy from and to such memory only.
	AllocHost(n int) ([]byte, error)
	FreeHost(b []byte) error
	// Load compiles PTX for the GPU.
	Load(ptx string) (Module, error)
	NewStream() (Stream, error)
	NewEvent() (Event, error)
	// Do calls f while the GPU is current on the calling thread, for libraries that
	// compute on the current GPU, such as cuBLAS.
	Do(f func() error) error
}

// Module is loaded PTX.
type Module interface {
	Kernel(name string) (Kernel, error)
}

// Stream is a queue of work. Its work must be done before Close.
type Stream interface {
	// In and Out copy bytes. The host's side must be pinned and must not change until
	// the copy is done.
	In(to Pointer, from []byte) error
	Out(to []byte, from Pointer) error
	// Launch runs a kernel. params are its parameters as the kernel lays them out,
	// each aligned to its size; the driver has copied them when Launch returns.
	Launch(k Kernel, s Shape, params []byte) error
	// Record lets e mark the work that is on the stream now.
	Record(e Event) error
	// Wait lets later work of this stream wait for what the event marks.
	Wait(e Event) error
	// Capture makes a graph of the work that put puts on the stream, which does not run.
	Capture(put func() error) (Graph, error)
	// Replay puts a graph's work on the stream.
	Replay(g Graph) error
	// Handle is the driver's name of the stream.
	Handle() uintptr
	io.Closer
}

// Graph is recorded work.
type Graph io.Closer

// Event marks a place in a stream. An event that was never recorded is done.
type Event interface {
	Done() (bool, error)
	io.Closer
}

// Shape is how many threads run a kernel.
type Shape struct {
	Grid, Block [3]uint32 // blocks, and threads of a block
}

// TimeoutError is returned by Await.
type TimeoutError struct{ After time.Duration }

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("the gpu has not finished its work after %v", e.After)
}

// Await waits until an event is done, for a bounded time. It asks without a
// pause at first, because most waits are short.
func Await(e Event, limit time.Duration) error {
	begin, pause := time.Now(), 10*time.Microsecond
	for {
		done, err := e.Done()
		if done || err != nil {
			return err
		}
		waited := time.Since(begin)
		switch {
		case waited > limit:
			return &TimeoutError{limit}
		case waited > 100*time.Microsecond:
			time.Sleep(pause)
			pause = min(2*pause, time.Millisecond)
		}
	}
}

// Codes of errors that callers tell apart. They are the driver's numbers.
const (
	OutOfMemory    = 2
	NoDevice       = 100
	InvalidPTX     = 218
	PTXTooNew      = 222
	NotFound       = 500
	IllegalAddress = 700
)

// Error is a refusal of the driver, or of a library of NVIDIA's that has codes of its
// own.
type Error struct {
	Call string // the function that was called
	Code int
	Name string // the driver's or library's name of the code; empty if it has none
	Text string // more, such as the compiler's complaint; may be empty
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s: error %d", e.Call, e.Code)
	if e.Name != "" {
		text += " (" + e.Name + ")"
	}
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}
