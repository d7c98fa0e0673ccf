//go:build linux && !android && !faketime && !nodlopen && (amd64 || arm64)

package cuda

import (
	"cmp"
	"errors"
	"runtime"
	"unsafe"

	"github.com/plx-run/plx/trainer/executor/device"
)

const (
	nonBlocking = 1   // CU_STREAM_NON_BLOCKING: the stream does not wait for the legacy default stream
	noTiming    = 2   // CU_EVENT_DISABLE_TIMING: the event records no time stamp
	notReady    = 600 // CUDA_ERROR_NOT_READY: the work before an event is not done
	relaxed     = 2   // CU_STREAM_CAPTURE_MODE_RELAXED: other threads may call the driver during a capture
)

func (g *gpu) NewStream() (device.Stream, error) {
	s := &stream{gpu: g}
	if err := g.in("cuStreamCreate", uintptr(unsafe.Pointer(&s.handle)), nonBlocking); err != nil {
		return nil, err
	}
	return s, nil
}

// stream implements device.Stream.
type stream struct {
	*gpu
	handle uintptr
	params [5]uintptr // array of launch options, which Launch passes to cuLaunchKernel
	size   uintptr    // size of the kernel's parameters in bytes
}

func (s *stream) In(to device.Pointer, from []byte) error {
	return s.step("cuMemcpyHtoDAsync_v2", uintptr(to), uintptr(unsafe.Pointer(unsafe.SliceData(from))), uintptr(len(from)), s.handle)
}

func (s *stream) Out(to []byte, from device.Pointer) error {
	return s.step("cuMemcpyDtoHAsync_v2", uintptr(unsafe.Pointer(unsafe.SliceData(to))), uintptr(from), uintptr(len(to)), s.handle)
}

func (s *stream) Launch(k device.Kernel, shape device.Shape, params []byte) error {
	s.size = uintptr(len(params))
	// The numbers are the driver's option codes:
	// CU_LAUNCH_PARAM_BUFFER_POINTER is 1, CU_LAUNCH_PARAM_BUFFER_SIZE is 2,
	// and CU_LAUNCH_PARAM_END is 0.
	s.params = [5]uintptr{1, uintptr(unsafe.Pointer(unsafe.SliceData(params))), 2, uintptr(unsafe.Pointer(&s.size)), 0}
	g, b := shape.Grid, shape.Block
	err := s.step("cuLaunchKernel", uintptr(k), uintptr(g[0]), uintptr(g[1]), uintptr(g[2]), uintptr(b[0]), uintptr(b[1]), uintptr(b[2]),
		0, s.handle, 0, uintptr(unsafe.Pointer(&s.params[0])))
	runtime.KeepAlive(params)
	return err
}

func (s *stream) Record(e device.Event) error {
	return s.step("cuEventRecord", e.(*event).handle, s.handle)
}

func (s *stream) Wait(e device.Event) error {
	return s.step("cuStreamWaitEvent", s.handle, e.(*event).handle, 0)
}

func (s *stream) Close() error { return s.in("cuStreamDestroy_v2", s.handle) }

func (s *stream) Handle() uintptr { return s.handle }

func (s *stream) Capture(put func() error) (device.Graph, error) {
	if s.calls[instantiate] == 0 {
		return nil, errors.New("this driver records no graphs: it is older than CUDA 11.4")
	}
	if err := s.in("cuStreamBeginCapture_v2", s.handle, relaxed); err != nil {
		return nil, err
	}
	failed := put()
	var recorded uintptr
	if err := s.in("cuStreamEndCapture", s.handle, uintptr(unsafe.Pointer(&recorded))); err != nil {
		return nil, cmp.Or(failed, err)
	}
	g := &graph{gpu: s.gpu}
	if failed == nil {
		failed = s.in(instantiate, uintptr(unsafe.Pointer(&g.handle)), recorded, 0)
	}
	if err := cmp.Or(failed, s.in("cuGraphDestroy", recorded)); err != nil {
		return nil, err
	}
	return g, nil
}

func (s *stream) Replay(g device.Graph) error {
	return s.step("cuGraphLaunch", g.(*graph).handle, s.handle)
}

// graph implements device.Graph.
type graph struct {
	*gpu
	handle uintptr
}

func (g *graph) Close() error { return g.in("cuGraphExecDestroy", g.handle) }

func (g *gpu) NewEvent() (device.Event, error) {
	e := &event{gpu: g}
	if err := g.in("cuEventCreate", uintptr(unsafe.Pointer(&e.handle)), noTiming); err != nil {
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
	switch code := e.quick("cuEventQuery", e.handle); code {
	case 0:
		return true, nil
	case notReady:
		return false, nil
	default:
		return false, e.failed("cuEventQuery", code, "")
	}
}

func (e *event) Close() error { return e.in("cuEventDestroy_v2", e.handle) }
