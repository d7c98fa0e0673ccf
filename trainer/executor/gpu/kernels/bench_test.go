package kernels_test

import (
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/device/cuda"
	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// bench is the GPU on which tests run kernels. Its methods fail the test on an
// error.
type bench struct {
	testing.TB
	device.GPU
}

var (
	opening sync.Mutex
	opened  device.GPU // after the first test
	loaded  = map[string]device.Module{}
)

// open returns the GPU of this process, which all tests share: the stand-in
// for a GPU, or a GPU of this machine.
func open(t testing.TB) bench {
	t.Helper()
	opening.Lock()
	defer opening.Unlock()
	if opened == nil {
		cudatest.Start(t, cudatest.Options{Eager: !cudatest.OnMachine()})
		g, err := cuda.Open(0)
		if err != nil {
			t.Fatalf("open the gpu: %v", err)
		}
		opened = g
		for _, m := range Modules() {
			if loaded[m.Name], err = g.Load(m.PTX); err != nil {
				t.Fatal(err)
			}
		}
	}
	return bench{t, opened}
}

func (b bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b bench) stream() device.Stream {
	b.Helper()
	s, err := b.NewStream()
	b.must(err)
	return s
}

// memory allocates n bytes of GPU memory and n bytes of pinned host memory.
func (b bench) memory(n int) (at uint64, pinned []byte) {
	b.Helper()
	p, err := b.Alloc(max(n, 8))
	b.must(err)
	pinned, err = b.AllocHost(max(n, 8))
	b.must(err)
	return uint64(p), pinned
}

// finish waits until the stream's work is done and closes the stream.
func (b bench) finish(s device.Stream) {
	b.Helper()
	b.await(s)
	b.must(s.Close())
}

// await waits until all work of the stream is done.
func (b bench) await(s device.Stream) {
	b.Helper()
	e, err := b.NewEvent()
	b.must(err)
	b.must(s.Record(e))
	b.must(device.Await(e, time.Minute))
	b.must(e.Close())
}

func (b bench) kernel(module, name string) device.Kernel {
	b.Helper()
	k, err := loaded[module].Kernel(name)
	b.must(err)
	return k
}
