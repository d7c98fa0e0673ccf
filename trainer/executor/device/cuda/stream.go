//go:build linux && !android && !faketime && !nodlopen && (amd64 || arm64)

package cuda

import (
	"errors"
	"runtime"
	"unsafe"

	"github.com/plx-run/plx/trainer/executor/device"
)

const (
	nonBlocking = 1   // a stream that does not wait for the legacy default stream
	noTiming    = 2   // an event that takes no time stamps
	notReady    = 600 // the driver's code for work that is not done
	relaxed     = 2   // other threads may call the driver while a stream is captured
)

func (g *gpu) NewStream() (*device.Stream, error) {
	s := &stream{gpu: g}
	if err := g.in(streamMake, uintptr(unsafe.Pointer(&s.handle)), nonBlocking); err != nil {
		return nil, err
	}
	return &device.Stream{Copies: s, Launches: s, Order: s, Recording: s, Queue: s.handle}, nil
}

// stream implements all parts of device.Stream.
type stream struct {
	*gpu
	handle uintptr
	params [5]uintptr // what Launch hands the driver
	size   uintptr    // bytes of the parameters
}

func (s *stream) In(to device.Pointer, from []byte) error {
	return s.checked(copyIn, s.quick(copyIn, uintptr(to), uintptr(unsafe.Pointer(unsafe.SliceData(from))), uintptr(len(from)), s.handle))
}

func (s *stream) Out(to []byte, from device.Pointer) error {
	return s.checked(copyOut, s.quick(copyOut, uintptr(unsafe.Pointer(unsafe.SliceData(to))), uintptr(from), uintptr(len(to)), s.handle))
}

func (s *stream) Within(to, from device.Pointer, n int) error {
	return s.checked(copyWithin, s.quick(copyWithin, uintptr(to), uintptr(from), uintptr(n), s.handle))
}

func (s *stream) Zero(at device.Pointer, n int) error {
	return s.checked(set, s.quick(set, uintptr(at), 0, uintptr(n), s.handle))
}

// How the driver is told of parameters that lie in one block.
const (
	endOfList      = 0
	paramBlock     = 1
	paramBlockSize = 2
)

func (s *stream) Launch(k device.Kernel, shape device.Shape, params []byte) error {
	s.size = uintptr(len(params))
	s.params = [5]uintptr{paramBlock, uintptr(unsafe.Pointer(unsafe.SliceData(params))), paramBlockSize, uintptr(unsafe.Pointer(&s.size)), endOfList}
	g, b := shape.Grid, shape.Block
	code := s.quick(launch, uintptr(k), uintptr(g[0]), uintptr(g[1]), uintptr(g[2]), uintptr(b[0]), uintptr(b[1]), uintptr(b[2]),
		uintptr(shape.Shared), s.handle, 0, uintptr(unsafe.Pointer(&s.params[0])))
	runtime.KeepAlive(params)
	return s.checked(launch, code)
}

func (s *stream) Record(e device.Event) error {
	return s.checked(eventRecord, s.quick(eventRecord, e.(*event).handle, s.handle))
}

func (s *stream) Wait(e device.Event) error {
	return s.checked(streamWait, s.quick(streamWait, s.handle, e.(*event).handle, 0))
}

func (s *stream) Close() error { return s.in(streamClose, s.handle) }

func (s *stream) Begin() error {
	if s.calls[instantiate] == 0 {
		return errors.New("this driver records no graphs: it is older than CUDA 11.4")
	}
	return s.in(begin, s.handle, relaxed)
}

func (s *stream) End() (device.Graph, error) {
	var recorded uintptr
	if err := s.in(end, s.handle, uintptr(unsafe.Pointer(&recorded))); err != nil {
		return nil, err
	}
	g := &graph{gpu: s.gpu}
	err := s.in(instantiate, uintptr(unsafe.Pointer(&g.handle)), recorded, 0)
	if dropped := s.in(dropGraph, recorded); err == nil {
		err = dropped
	}
	if err != nil {
		return nil, err
	}
	return g, nil
}

// graph implements device.Graph.
type graph struct {
	*gpu
	handle uintptr
}

func (g *graph) Replay(s *device.Stream) error {
	return g.checked(replay, g.quick(replay, g.handle, s.Queue))
}

func (g *graph) Close() error { return g.in(drop, g.handle) }

func (g *gpu) NewEvent() (device.Event, error) {
	e := &event{gpu: g}
	if err := g.in(eventMake, uintptr(unsafe.Pointer(&e.handle)), noTiming); err != nil {
		return nil, err
	}
	return e, nil
}

// event implements device.Event.
type event struct {
	*gpu
	handle uintptr
}

func (e *event) Done() (bool, error) {
	switch code := e.quick(eventDone, e.handle); code {
	case 0:
		return true, nil
	case notReady:
		return false, nil
	default:
		return false, e.failed(eventDone, code, "")
	}
}

func (e *event) Close() error { return e.in(eventClose, e.handle) }
