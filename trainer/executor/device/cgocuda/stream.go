//go:build cuda && linux

package cgocuda

import (
	"errors"
	"unsafe"

	"github.com/plx-run/plx/trainer/executor/device"
	"gorgonia.org/cu"
)

func (g *gpu) NewStream() (device.Stream, error) {
	s := &stream{gpu: g}
	if err := g.in("cuStreamCreate", func() (err error) { s.handle, err = cu.MakeStream(cu.NonBlocking); return err }); err != nil {
		return nil, err
	}
	s.queue = uintptr(unsafe.Pointer(s.handle.C()))
	return s, nil
}

// stream implements device.Stream.
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

func (s *stream) Handle() uintptr { return s.queue }

func (s *stream) Capture(put func() error) (device.Graph, error) {
	if !canRecord() {
		return nil, errors.New("this driver records no graphs: it is older than CUDA 11.4")
	}
	if err := s.in("cuStreamBeginCapture", func() error { return beginRecording(s.queue) }); err != nil {
		return nil, err
	}
	failed := put()
	g := &graph{gpu: s.gpu}
	var call string
	err := s.Do(func() (err error) { g.handle, call, err = endRecording(s.queue); return err })
	if failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, refused(call, err)
	}
	return g, nil
}

func (s *stream) Replay(g device.Graph) error {
	return s.in("cuGraphLaunch", func() error { return replay(g.(*graph).handle, s.queue) })
}

// graph implements device.Graph.
type graph struct {
	*gpu
	handle uintptr
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
