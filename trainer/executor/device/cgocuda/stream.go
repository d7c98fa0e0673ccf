//go:build cgocuda && linux

package cgocuda

import (
	"errors"
	"unsafe"

	"github.com/plx-run/plx/trainer/executor/device"
	"gorgonia.org/cu"
)

func (g *gpu) NewStream() (*device.Stream, error) {
	s := &stream{gpu: g}
	if err := g.in("cuStreamCreate", func() (err error) { s.handle, err = cu.MakeStream(cu.NonBlocking); return err }); err != nil {
		return nil, err
	}
	s.queue = uintptr(unsafe.Pointer(s.handle.C()))
	return &device.Stream{Copies: s, Launches: s, Order: s, Recording: s, Queue: s.queue}, nil
}

// stream implements all parts of device.Stream.
type stream struct {
	*gpu
	handle cu.Stream
	queue  uintptr // the same, for the calls that this package makes itself
}

func (s *stream) In(to device.Pointer, from []byte) error {
	return s.in("cuMemcpyHtoDAsync", func() error {
		return cu.MemcpyHtoDAsync(cu.DevicePtr(to), unsafe.Pointer(unsafe.SliceData(from)), int64(len(from)), s.handle)
	})
}

func (s *stream) Out(to []byte, from device.Pointer) error {
	return s.in("cuMemcpyDtoHAsync", func() error {
		return cu.MemcpyDtoHAsync(unsafe.Pointer(unsafe.SliceData(to)), cu.DevicePtr(from), int64(len(to)), s.handle)
	})
}

func (s *stream) Within(to, from device.Pointer, n int) error {
	return s.in("cuMemcpyDtoDAsync", func() error {
		return cu.MemcpyDtoDAsync(cu.DevicePtr(to), cu.DevicePtr(from), int64(n), s.handle)
	})
}

func (s *stream) Zero(at device.Pointer, n int) error {
	return s.in("cuMemsetD8Async", func() error { return cu.MemsetD8Async(cu.DevicePtr(at), 0, int64(n), s.handle) })
}

func (s *stream) Launch(k device.Kernel, shape device.Shape, params []byte) error {
	return s.in("cuLaunchKernel", func() error { return launch(k, shape, s.queue, params) })
}

func (s *stream) Record(e device.Event) error {
	return s.in("cuEventRecord", func() error { return e.(*event).handle.Record(s.handle) })
}

func (s *stream) Wait(e device.Event) error {
	return s.in("cuStreamWaitEvent", func() error { return s.handle.Wait(e.(*event).handle, 0) })
}

func (s *stream) Close() error { return s.in("cuStreamDestroy", s.handle.Destroy) }

func (s *stream) Begin() error {
	if !canRecord() {
		return errors.New("this driver records no graphs: it is older than CUDA 11.4")
	}
	return s.in("cuStreamBeginCapture", func() error { return beginRecording(s.queue) })
}

func (s *stream) End() (device.Graph, error) {
	g := &graph{gpu: s.gpu}
	var call string
	var failed error
	if err := s.in("", func() error { g.handle, call, failed = endRecording(s.queue); return nil }); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, refused(call, failed)
	}
	return g, nil
}

// graph implements device.Graph.
type graph struct {
	*gpu
	handle uintptr
}

func (g *graph) Replay(s *device.Stream) error {
	return g.in("cuGraphLaunch", func() error { return replay(g.handle, s.Queue) })
}

func (g *graph) Close() error {
	return g.in("cuGraphExecDestroy", func() error { return drop(g.handle) })
}

func (g *gpu) NewEvent() (device.Event, error) {
	e := &event{gpu: g}
	if err := g.in("cuEventCreate", func() (err error) { e.handle, err = cu.MakeEvent(cu.DisableTiming); return err }); err != nil {
		return nil, err
	}
	return e, nil
}

// event implements device.Event.
type event struct {
	*gpu
	handle cu.Event
}

func (e *event) Done() (bool, error) {
	done := true
	err := e.in("cuEventQuery", func() error {
		err := e.handle.Query()
		if err == cu.NotReady {
			done, err = false, nil
		}
		return err
	})
	return done && err == nil, err
}

func (e *event) Close() error {
	return e.in("cuEventDestroy", func() error { return cu.DestroyEvent(&e.handle) })
}
