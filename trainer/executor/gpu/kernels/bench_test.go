package kernels_test

import (
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/gputest"
	"github.com/plx-run/plx/trainer/executor/device"
	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// bench is the GPU of the tests. Its methods fail the test.
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

func (b bench) stream() *device.Stream {
	b.Helper()
	s, err := b.NewStream()
	b.must(err)
	return s
}

// memory is memory for n bytes, and as much pinned memory.
func (b bench) memory(n int) (at uint64, pinned []byte) {
	b.Helper()
	p, err := b.Alloc(max(n, 8))
	b.must(err)
	pinned, err = b.AllocHost(max(n, 8))
	b.must(err)
	return uint64(p), pinned
}

// finish waits for a stream's work and gives the stream back.
func (b bench) finish(s *device.Stream) {
	b.Helper()
	e, err := b.NewEvent()
	b.must(err)
	b.must(s.Record(e))
	b.must(device.Await(e, time.Minute))
	b.must(e.Close())
	b.must(s.Close())
}

func (b bench) kernel(module, name string) device.Kernel {
	b.Helper()
	modules, err := loaded()
	b.must(err)
	k, err := modules[module].Kernel(name)
	b.must(err)
	return k
}

// loaded are all modules on the GPU of the tests, by name.
var loaded = sync.OnceValues(func() (map[string]device.Module, error) {
	all := map[string]device.Module{}
	g, err := gputest.Shared()
	for _, m := range Modules() {
		if err == nil {
			all[m.Name], err = g.Load([]byte(m.PTX))
		}
	}
	return all, err
})
