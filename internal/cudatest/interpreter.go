package cudatest

import (
	"errors"
	"fmt"

	"github.com/plx-run/plx/internal/ptx"
	"github.com/plx-run/plx/trainer/executor/device"
)

// Interpreter is a GPU without a driver: package ptx in this process. Work runs at
// once when it is put on a stream, so it shows what a right order gives.
func Interpreter(bytes uint64) *device.GPU {
	g := &interpreter{memory: ptx.NewMemory(bytes), total: bytes}
	return &device.GPU{Info: device.Info{Name: "Interpreter", Major: 7, Driver: 12040, Total: bytes}, Memory: g, Host: g, Work: g}
}

// interpreter implements device.Memory, device.Host and device.Work.
type interpreter struct {
	memory  *ptx.Memory
	total   uint64
	kernels kernelTable
}

func (g *interpreter) Alloc(n int) (device.Pointer, error) {
	p, err := g.memory.Alloc(uint64(n))
	if err != nil {
		return 0, &device.Error{Call: "allocate", Code: device.OutOfMemory, Text: err.Error()}
	}
	return device.Pointer(p), nil
}

func (g *interpreter) Free(p device.Pointer) error { return g.memory.Free(uint64(p)) }

func (g *interpreter) Available() (uint64, error) { return g.total - g.memory.Used(), nil }

func (g *interpreter) AllocHost(n int) ([]byte, error) { return make([]byte, n), nil }

func (g *interpreter) FreeHost([]byte) error { return nil }

func (g *interpreter) NewEvent() (device.Event, error) { return past{}, nil }

func (g *interpreter) NewStream() (*device.Stream, error) {
	s := &eager{gpu: g}
	return &device.Stream{Copies: s, Launches: s, Order: s, Recording: s}, nil
}

func (g *interpreter) Load(source []byte) (device.Module, error) {
	m, err := ptx.Parse(string(source))
	if err != nil {
		return nil, &device.Error{Call: "parse", Code: device.InvalidPTX, Text: err.Error()}
	}
	return &interpreted{m, &g.kernels}, nil
}

// interpreted implements device.Module.
type interpreted struct {
	module *ptx.Module
	table  *kernelTable
}

func (m *interpreted) Kernel(name string) (device.Kernel, error) {
	k, err := m.module.Kernel(name)
	if err != nil {
		return 0, &device.Error{Call: "find " + name, Code: device.NotFound, Text: err.Error()}
	}
	return m.table.add(k), nil
}

func (m *interpreted) Unload() error { return nil }

// past is an event: all work was done at once.
type past struct{}

func (past) Done() (bool, error) { return true, nil }

func (past) Close() error { return nil }

// eager implements the parts of device.Stream.
type eager struct {
	gpu      *interpreter
	recorded *recording // not nil: work is recorded instead
}

func (s *eager) do(work func() error) error {
	if s.recorded != nil {
		s.recorded.add(work)
		return nil
	}
	return work()
}

func (s *eager) In(to device.Pointer, from []byte) error {
	return s.do(func() error { return s.gpu.memory.Write(uint64(to), from) })
}

func (s *eager) Out(to []byte, from device.Pointer) error {
	return s.do(func() error { return s.gpu.memory.Read(uint64(from), to) })
}

func (s *eager) Within(to, from device.Pointer, n int) error {
	return s.do(func() error { return s.gpu.memory.Copy(uint64(to), uint64(from), uint64(n)) })
}

func (s *eager) Zero(at device.Pointer, n int) error {
	return s.do(func() error { return s.gpu.memory.Fill8(uint64(at), 0, uint64(n)) })
}

func (s *eager) Launch(k device.Kernel, shape device.Shape, params []byte) error {
	kernel, params := s.gpu.kernels.of(k), append([]byte(nil), params...)
	if kernel == nil {
		return fmt.Errorf("there is no kernel %d", k)
	}
	return s.do(func() error { return kernel.Launch(s.gpu.memory, shape.Grid, shape.Block, shape.Shared, params) })
}

func (s *eager) Record(device.Event) error { return nil }

func (s *eager) Wait(device.Event) error { return nil }

func (s *eager) Close() error { return nil }

func (s *eager) Begin() error {
	s.recorded = &recording{}
	return nil
}

func (s *eager) End() (device.Graph, error) {
	r := s.recorded
	if r == nil {
		return nil, errors.New("nothing is recorded")
	}
	s.recorded = nil
	return r, nil
}

// recording implements device.Graph.
type recording struct{ work []func() error }

func (r *recording) add(work func() error) { r.work = append(r.work, work) }

func (r *recording) Replay(*device.Stream) error {
	for _, work := range r.work {
		if err := work(); err != nil {
			return err
		}
	}
	return nil
}

func (r *recording) Close() error { return nil }
