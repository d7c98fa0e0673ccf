//go:build linux && (amd64 || arm64)

package cublas

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/device/cuda"
	"github.com/plx-run/plx/trainer/executor/memory"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start opens a stand-in for a GPU. It returns the GPU and the path of a
// stand-in for cuBLAS.
func start(t *testing.T, b cudatest.BLAS) (g device.GPU, file string) {
	t.Helper()
	d := cudatest.Start(t, cudatest.Options{BLAS: &b})
	g, err := cuda.Open(0)
	must(t, err)
	return g, d.BLAS
}

// look makes Choose try the files names instead of NVIDIA's, until the test
// ends.
func look(t *testing.T, names ...string) {
	old := files
	t.Cleanup(func() { files = old })
	files = names
}

// bench is a stand-in for a GPU and a cuBLAS handle on it.
type bench struct {
	testing.TB
	gpu    device.GPU
	stream device.Stream
	handle *Handle
	done   device.Event
}

func newBench(t *testing.T) *bench {
	g, file := start(t, cudatest.BLAS{})
	c, err := Choose(file, g)
	must(t, err)
	b := &bench{TB: t, gpu: g}
	b.stream, err = g.NewStream()
	must(t, err)
	b.done, err = g.NewEvent()
	must(t, err)
	workspace, err := g.Alloc(c.Workspace())
	must(t, err)
	b.handle, err = c.On(b.stream, workspace)
	must(t, err)
	return b
}

// put copies the numbers in x to new GPU memory.
func put[T float32 | float64](b *bench, x []T) device.Pointer {
	b.Helper()
	p, err := b.gpu.Alloc(max(8, len(memory.Bytes(x))))
	must(b, err)
	host, err := b.gpu.AllocHost(len(memory.Bytes(x)))
	must(b, err)
	copy(host, memory.Bytes(x))
	must(b, b.stream.In(p, host))
	b.finish()
	return p
}

func get[T float32 | float64](b *bench, p device.Pointer, n int) []T {
	b.Helper()
	var zero T
	host, err := b.gpu.AllocHost(n * len(memory.Bytes([]T{zero})))
	must(b, err)
	must(b, b.stream.Out(host, p))
	b.finish()
	return memory.View[T](host)
}

// finish waits for the stream.
func (b *bench) finish() {
	b.Helper()
	must(b, b.stream.Record(b.done))
	must(b, device.Await(b.done, 20*time.Second))
}

// naive computes product p with plain loops. It adds in descending order of k,
// as the stand-in for cuBLAS does.
func naive[T float32 | float64](p Product, a, b []T) []T {
	var out []T
	for pair := range p.Count {
		a, b := a[pair*p.M*p.K:], b[pair*p.K*p.N:]
		for i := range p.M {
			for j := range p.N {
				var sum T
				for k := p.K - 1; k >= 0; k-- {
					x, y := a[i*p.K+k], b[k*p.N+j]
					if p.TransA {
						x = a[k*p.M+i]
					}
					if p.TransB {
						y = b[j*p.K+k]
					}
					sum += T(x * y)
				}
				out = append(out, sum)
			}
		}
	}
	return out
}

// Products of all shapes have the same bits as naive, both when they run
// directly and when a graph replays them.
func TestProductsMatchDefinition(t *testing.T) {
	b := newBench(t)
	random := rand.New(rand.NewPCG(1, 2))
	edge := []int{1, 2, 7, 13, 16, 31}
	for range 60 {
		pick := func() int { return edge[random.IntN(len(edge))] }
		p := Product{Double: random.IntN(2) == 0, Count: 1 + random.IntN(2)*random.IntN(4), M: pick(), N: pick(), K: pick(),
			TransA: random.IntN(2) == 0, TransB: random.IntN(2) == 0}
		if p.Double {
			checkProduct[float64](b, random, p)
		} else {
			checkProduct[float32](b, random, p)
		}
	}
}

func checkProduct[T float32 | float64](b *bench, random *rand.Rand, p Product) {
	b.Helper()
	noise := func(n int) []T {
		x := make([]T, n)
		for i := range x {
			x[i] = T(random.NormFloat64())
		}
		return x
	}
	x, y := noise(p.Count*p.M*p.K), noise(p.Count*p.K*p.N)
	want := fmt.Sprint(naive(p, x, y))
	nothing := make([]T, p.Count*p.M*p.N)
	p.A, p.B, p.Out = put(b, x), put(b, y), put(b, nothing)
	must(b, b.handle.Multiply(&p))
	if got := fmt.Sprint(get[T](b, p.Out, len(nothing))); got != want {
		b.Errorf("%+v:\ngot  %s\nwant %s", p, got, want)
	}
	p.Out = put(b, nothing)
	g, err := b.stream.Capture(func() error { return b.handle.Multiply(&p) })
	must(b, err)
	if got := fmt.Sprint(get[T](b, p.Out, len(nothing))); got != fmt.Sprint(nothing) {
		b.Errorf("%+v: a product that was only recorded has run: %s", p, got)
	}
	must(b, b.stream.Replay(g))
	if got := fmt.Sprint(get[T](b, p.Out, len(nothing))); got != want {
		b.Errorf("%+v, replayed:\ngot  %s\nwant %s", p, got, want)
	}
	must(b, g.Close())
	for _, at := range []device.Pointer{p.A, p.B, p.Out} {
		must(b, b.gpu.Free(at))
	}
}

// Handle.Multiply allocates nothing. The test reads the memory profile, which
// attributes allocations to functions, because the stand-in for cuBLAS
// allocates in the same process.
func TestMultiplyAllocatesNothing(t *testing.T) {
	defer func(old int) { runtime.MemProfileRate = old }(runtime.MemProfileRate)
	runtime.MemProfileRate = 1
	b := newBench(t)
	x := put(b, make([]float32, 12))
	p := &Product{Count: 1, M: 2, N: 3, K: 2, A: x, B: x, Out: put(b, make([]float32, 6))}
	many := &Product{Count: 2, M: 2, N: 3, K: 2, A: x, B: x, Out: put(b, make([]float32, 12))}
	for range 20 {
		must(t, b.handle.Multiply(p))
		must(t, b.handle.Multiply(many))
	}
	b.finish()
	if got := allocated("cublas.(*Handle).Multiply"); got != 0 {
		t.Errorf("40 products allocate %d times", got)
	}
	if allocated("cublas.put[") == 0 {
		t.Error("the profile does not know that put allocates")
	}
	must(t, b.handle.Close())
}

// allocated returns the number of allocations of a function and the functions
// that it called, from the memory profile. All allocations must be profiled.
// It leaves out those of sync.Pool, which drops values at random under the
// race detector.
func allocated(function string) (n int64) {
	runtime.GC() // The profile only contains allocations from before the last two garbage collections.
	runtime.GC()
	records := make([]runtime.MemProfileRecord, 100_000)
	k, _ := runtime.MemProfile(records, true)
	for _, r := range records[:min(k, len(records))] {
		frames := runtime.CallersFrames(r.Stack())
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if strings.HasPrefix(f.Function, "sync.(*Pool)") {
				break
			}
			if strings.Contains(f.Function, function) {
				n += r.AllocObjects
				break
			}
		}
	}
	return n
}

// The Choice names the library, and its Note says why "auto" did not choose
// cuBLAS.
func TestChooseReportsItsChoice(t *testing.T) {
	g, file := start(t, cudatest.BLAS{})
	look(t, "libcublas.so.99", file)
	const found = "cuBLAS 12.4.5 (libcublas.so.12)"
	for spec, want := range map[string]string{"": found, "auto": found, "on": found, file: found, "off": "plx's own kernels"} {
		if c, err := Choose(spec, g); err != nil || c.String() != want {
			t.Errorf("%q: %v, %v; want %s", spec, c, err, want)
		}
	}
	look(t, "libcublas.so.99", "libcublas.so.98")
	if c, err := Choose("auto", g); err != nil || c.String() != "plx's own kernels (no cuBLAS was found)" {
		t.Errorf("auto without cuBLAS: %v, %v", c, err)
	}
	for spec, want := range map[string]string{"on": "libcublas.so.98", "libcublas.so.97": "libcublas.so.97", "yes": "PLX_CUBLAS=yes is not known"} {
		c, err := Choose(spec, g)
		var helpful interface{ Hint() string }
		if c.Library != nil || err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &helpful) || helpful.Hint() == "" {
			t.Errorf("%q: %v, %v; want %q and a hint", spec, c, err, want)
		}
	}
}

// The error for an unusable library gives the reason. With "auto" Choose
// returns no error but a Note with the reason.
func TestChooseReportsUnusableLibrary(t *testing.T) {
	for want, b := range map[string]cudatest.BLAS{
		"it is cuBLAS 10.4.5, want 11 or newer":                                 {Major: 10},
		"it has no function cublasSetWorkspace_v2: want cuBLAS 11 or newer":     {Without: "cublasSetWorkspace_v2"},
		"it has no function cublasDgemmStridedBatched: want cuBLAS 11 or newer": {Without: "cublasDgemmStridedBatched"},
		"cublasCreate_v2: error 13 (CUBLAS_STATUS_EXECUTION_FAILED)":            {Failing: "cublasCreate_v2"},
		"cublasGetProperty: error 13 (CUBLAS_STATUS_EXECUTION_FAILED)":          {Failing: "cublasGetProperty"},
	} {
		t.Run(want, func(t *testing.T) {
			g, file := start(t, b)
			c, err := Choose(file, g)
			if c.Library != nil || err == nil || !strings.Contains(err.Error(), file+": "+want) {
				t.Errorf("%v, %v", c, err)
			}
			look(t, "libcublas.so.99", file)
			if c, err := Choose("auto", g); err != nil || !strings.HasPrefix(c.String(), "plx's own kernels (") || !strings.Contains(c.String(), want) {
				t.Errorf("auto: %v, %v", c, err)
			}
		})
	}
}

// An error names the function of cuBLAS that failed.
func TestErrorNamesFailedCall(t *testing.T) {
	for _, call := range []string{"cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasSetMathMode", "cublasSgemm_v2", "cublasDgemmStridedBatched"} {
		g, file := start(t, cudatest.BLAS{Failing: call})
		c, err := Choose(file, g)
		must(t, err)
		s, err := g.NewStream()
		must(t, err)
		at, err := g.Alloc(c.Workspace())
		must(t, err)
		h, err := c.On(s, at)
		for _, p := range []*Product{{Count: 1, M: 1, N: 1, K: 1, A: at, B: at, Out: at}, {Double: true, Count: 2, M: 1, N: 1, K: 1, A: at, B: at, Out: at}} {
			if err == nil {
				err = h.Multiply(p)
			}
		}
		var refused *device.Error
		if !errors.As(err, &refused) || refused.Call != call || refused.Name != "CUBLAS_STATUS_EXECUTION_FAILED" {
			t.Errorf("%s fails: %v", call, err)
		}
	}
}
