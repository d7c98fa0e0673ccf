// Package device is the interface through which the executor uses a GPU:
// memory, streams, modules and events, in 20 calls. Package cuda implements it
// with NVIDIA's driver and without cgo. Package cgocuda implements it for
// programs that are built with the tag cu.
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
// Work that is put on a stream runs asynchronously, in the order of the
// stream. Only events order the work of two streams, or report to the host
// that work is done. No call blocks until the GPU is done, because a GPU that
// has failed or been disconnected would never answer. Instead, Await polls an
// event for a limited time.
//
// Any goroutine may call the methods of a GPU. Two goroutines must not call
// methods of one stream at the same time.
package device

import (
	"fmt"
	"io"
	"time"
)

// Pointer is an address in the memory of a GPU.
type Pointer uint64

// Kernel is the driver's handle of a function in a loaded module.
// Stream.Launch runs it.
type Kernel uintptr

// Info describes a GPU and its driver.
type Info struct {
	Name         string
	Major, Minor int    // compute capability, for example 7 and 0 for 7.0
	Through      string `json:",omitempty"` // Go package that calls the driver for plx; empty means package cuda
	Driver       int    // newest CUDA version that the driver supports, for example 12040 for 12.4
	Total        uint64 // size of the GPU's memory in bytes
	Free         uint64 // number of bytes of GPU memory that no process has allocated
}

// CUDA returns the newest CUDA version that the driver supports, for example
// "12.4".
func (i Info) CUDA() string { return fmt.Sprintf("%d.%d", i.Driver/1000, i.Driver%1000/10) }

// GPU is an opened GPU: its memory, kernels, streams and events.
type GPU interface {
	Info() (Info, error)
	// Alloc allocates n bytes of GPU memory, aligned to 256 bytes. n must be
	// positive. The contents are undefined.
	Alloc(n int) (Pointer, error)
	// Free frees GPU memory. No unfinished work of any stream may use the
	// memory.
	Free(p Pointer) error
	// AllocHost returns n bytes of pinned host memory, which the GPU can
	// access directly. Streams copy only from and to pinned memory.
	AllocHost(n int) ([]byte, error)
	FreeHost(b []byte) error
	// Load compiles PTX source for this GPU and loads it.
	Load(ptx string) (Module, error)
	NewStream() (Stream, error)
	NewEvent() (Event, error)
	// Do calls f with this GPU as the calling thread's current GPU. Libraries
	// such as cuBLAS compute on the current GPU.
	Do(f func() error) error
}

// Module is a piece of PTX code that is loaded on a GPU.
type Module interface {
	Kernel(name string) (Kernel, error)
}

// Stream is a queue of asynchronous work on a GPU. All of its work must be
// done before Close.
type Stream interface {
	// In copies bytes to the GPU, and Out copies bytes from the GPU. The
	// host's memory must be pinned, and the caller must not change it until
	// the copy is done.
	In(to Pointer, from []byte) error
	Out(to []byte, from Pointer) error
	// Launch runs a kernel. params holds the kernel's parameters one after the
	// other, each aligned to its own size. The caller may reuse params after
	// Launch returns.
	Launch(k Kernel, s Shape, params []byte) error
	// Record marks the current end of the stream with event e. The event is
	// done when all work that is on the stream at the time of the call is
	// done.
	Record(e Event) error
	// Wait delays later work of this stream until event e is done, that is,
	// all work before the place that e marks.
	Wait(e Event) error
	// Capture records the work that the function put puts on the stream, and
	// returns it as a graph. The work does not run.
	Capture(put func() error) (Graph, error)
	// Replay runs the work of a captured graph on the stream.
	Replay(g Graph) error
	// Handle returns the driver's handle of the stream, a CUstream.
	Handle() uintptr
	io.Closer
}

// Graph is a sequence of GPU work that Stream.Capture recorded.
type Graph io.Closer

// Event marks a place in a stream. Done reports whether the work before that
// place is finished. Done returns true for an event that was never recorded.
type Event interface {
	Done() (bool, error)
	io.Closer
}

// Shape is the number of threads that run a kernel, in three dimensions.
type Shape struct {
	Grid, Block [3]uint32 // number of blocks, and number of threads per block
}

// TimeoutError is the error of Await when the GPU does not finish in time.
type TimeoutError struct{ After time.Duration }

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("the gpu has not finished its work after %v", e.After)
}

// Await polls an event until it is done or the time limit has passed. It polls
// without a pause for the first 100 µs, because most waits are short.
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

// Error codes of the driver that callers of this package treat differently
// from other errors; see Error.Code.
const (
	OutOfMemory    = 2
	NoDevice       = 100
	InvalidPTX     = 218
	PTXTooNew      = 222
	NotFound       = 500
	IllegalAddress = 700
)

// Error is an error code that the driver, or another of NVIDIA's libraries,
// returned.
type Error struct {
	Call string // name of the C function that failed
	Code int
	Name string // name of the error code in the driver or library; empty if unknown
	Text string // further text, such as the PTX compiler's messages; may be empty
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
