package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/plx-run/plx/internal/test/cudatest"
	"github.com/plx-run/plx/trainer/executor/device"
	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// The benchmarks measure the GPU of this machine for internal/tools/gpucheck.
// Its script torch.py measures PyTorch with the same sizes, which it reads
// from the benchmarks' names.

// small reports whether the tests use small sizes, because the stand-in for a
// GPU is slow.
func small() bool { return testing.Short() || !cudatest.OnMachine() }

// measuredProducts returns the matrix products that BenchmarkProduct measures.
// All but the last are float32.
func measuredProducts() []Matrices {
	if small() {
		return []Matrices{{Count: 1, M: 33, N: 20, K: 40}, {Count: 2, M: 9, N: 8, K: 7, TransA: true}, {Count: 1, M: 5, N: 6, K: 7, TransB: true},
			{Count: 1, M: 9, N: 9, K: 9}}
	}
	return []Matrices{
		{Count: 1, M: 256, N: 256, K: 256}, {Count: 1, M: 1024, N: 1024, K: 1024}, {Count: 1, M: 4096, N: 4096, K: 4096},
		{Count: 1, M: 1024, N: 1024, K: 1024, TransA: true}, {Count: 1, M: 1024, N: 1024, K: 1024, TransB: true},
		{Count: 1, M: 64, N: 256, K: 1024}, {Count: 1, M: 96, N: 100, K: 784}, {Count: 1, M: 784, N: 100, K: 96, TransA: true},
		{Count: 1, M: 64, N: 64, K: 65536}, {Count: 64, M: 128, N: 128, K: 128}, {Count: 1, M: 2048, N: 8, K: 2048},
		{Count: 1, M: 1024, N: 1024, K: 1024},
	}
}

// measuredConvolution is a convolution with 3 x 3 filters that
// BenchmarkConvolution measures.
type measuredConvolution struct{ batch, channels, side, filters int }

func (c measuredConvolution) window() Window {
	return Window{Batch: c.batch, Channels: c.channels, Height: c.side, Width: c.side, KernelHeight: 3, KernelWidth: 3, Stride: 1, Pad: 1}
}

func measuredConvolutions() []measuredConvolution {
	if small() {
		return []measuredConvolution{{2, 3, 6, 4}}
	}
	return []measuredConvolution{{32, 3, 32, 16}, {32, 16, 16, 32}, {32, 64, 56, 64}, {16, 256, 14, 256}}
}

// The operations that the benchmarks measure match the CPU. Of large results
// the test compares some elements, and of large batches a few images.
func TestBenchmarkedOperationsMatchCPU(t *testing.T) {
	all := measuredProducts()
	for i, p := range all {
		if i < len(all)-1 {
			checkSomeOf[float32](t, p)
		} else {
			checkSomeOf[float64](t, p)
		}
	}
	for _, c := range measuredConvolutions() {
		c.batch = min(c.batch, 2)
		checkConvolution[float32](t, c.window(), c.filters)
	}
}

// checkSomeOf compares the last element of a product, and random other
// elements, with sums in double precision.
func checkSomeOf[T float](t *testing.T, p Matrices) {
	t.Helper()
	a, b := noise[T](1, p.Count*p.M*p.K), noise[T](2, p.Count*p.K*p.N)
	got := compute(t, p.Count*p.M*p.N, a, b)(Product(number[T](), p))
	random := rand.New(rand.NewPCG(3, 4))
	for n := range 200 {
		at := len(got) - 1
		if n > 0 {
			at = random.IntN(len(got))
		}
		pair, row, column, sum, sizes := at/(p.M*p.N), at/p.N%p.M, at%p.N, 0.0, 0.0
		for k := range p.K {
			i, j := row*p.K+k, k*p.N+column
			if p.TransA {
				i = k*p.M + row
			}
			if p.TransB {
				j = column*p.K + k
			}
			term := float64(a[pair*p.M*p.K+i]) * float64(b[pair*p.K*p.N+j])
			sum, sizes = sum+term, sizes+math.Abs(term)
		}
		same(t, fmt.Sprintf("%+v at %d", p, at), BoundOf("matrix product", number[T]()), got[at:at+1], []T{T(sum)}, float64(p.K)*sizes)
	}
}

// measure runs a benchmark of the function that prepare returns. billions is
// the work of one call in billions of a unit, such as FLOP; 0 means that
// measure reports no rate.
func measure(b *testing.B, name string, billions float64, unit string, prepare func(g bench, s device.Stream) (put func() error)) {
	b.Run(name, func(b *testing.B) {
		g := open(b)
		s := g.stream()
		put := prepare(g, s)
		g.await(s)
		b.ResetTimer()
		for range b.N {
			g.must(put())
		}
		g.finish(s)
		if billions > 0 {
			b.ReportMetric(billions*float64(b.N)/b.Elapsed().Seconds(), "G"+unit+"/s")
		}
	})
}

// operand allocates n bytes of GPU memory with random contents, until the
// benchmark ends.
func (b bench) operand(s device.Stream, n int) uint64 {
	at, err := b.Alloc(max(n, 8))
	b.must(err)
	b.Cleanup(func() { b.must(b.Free(at)) })
	some, err := b.AllocHost(256 << 10)
	b.must(err)
	b.Cleanup(func() { b.must(b.FreeHost(some)) })
	copy(some, bytesOf(noise[float64](1, len(some)/8)))
	for from := 0; from < n; from += len(some) {
		b.must(s.In(at+device.Pointer(from), some[:min(n-from, len(some))]))
	}
	b.await(s)
	return uint64(at)
}

// prepared returns a function that prepares an operation for measure. sizes
// are the sizes of the operands in bytes.
func prepared(sizes ...int) func(o Operation, err error) func(g bench, s device.Stream) (put func() error) {
	return func(o Operation, err error) func(g bench, s device.Stream) (put func() error) {
		return func(g bench, s device.Stream) func() error {
			g.must(err)
			var operands []uint64
			for _, n := range append(sizes, o.Scratch) {
				operands = append(operands, g.operand(s, n))
			}
			var launches []func() error
			for _, l := range o.Launches {
				k, params := g.kernel(l.Module, l.Kernel), l.Params(operands...)
				launches = append(launches, func() error { return s.Launch(k, device.Shape{Grid: l.Grid, Block: l.Block}, params) })
			}
			return func() error {
				for _, launch := range launches {
					if err := launch(); err != nil {
						return err
					}
				}
				return nil
			}
		}
	}
}

func BenchmarkProduct(b *testing.B) {
	all := measuredProducts()
	for i, p := range all {
		kind, bytes := Float32, 4
		if i == len(all)-1 {
			kind, bytes = Float64, 8
		}
		name := fmt.Sprintf("float%d,transposed=%v,%v/%dx%dx%dx%d", 8*bytes, p.TransA, p.TransB, p.Count, p.M, p.N, p.K)
		work := 2e-9 * float64(p.Count) * float64(p.M) * float64(p.N) * float64(p.K)
		measure(b, name, work, "FLOP", prepared(bytes*p.Count*p.M*p.N, bytes*p.Count*p.M*p.K, bytes*p.Count*p.K*p.N)(Product(kind, p)))
	}
}

func BenchmarkConvolution(b *testing.B) {
	for _, c := range measuredConvolutions() {
		name := fmt.Sprintf("/%dx%dx%dx%d", c.batch, c.channels, c.side, c.filters)
		images, filters, results := 4*c.batch*c.channels*c.side*c.side, 4*c.filters*c.channels*9, 4*c.batch*c.filters*c.side*c.side
		work := 2e-9 * float64(c.batch*c.filters) * float64(c.side*c.side) * float64(c.channels*9)
		w := c.window()
		measure(b, "forward"+name, work, "FLOP", prepared(results, images, filters)(Convolve(Float32, w, c.filters)))
		measure(b, "images"+name, work, "FLOP", prepared(images, filters, results)(ConvolveImageGradient(Float32, w, c.filters)))
		measure(b, "filters"+name, work, "FLOP", prepared(filters, images, results)(ConvolveFilterGradient(Float32, w, c.filters)))
	}
}

// BenchmarkMove measures copies, an addition whose speed memory limits, and
// launches of kernels that do almost nothing.
func BenchmarkMove(b *testing.B) {
	large, many := 256<<20, 100
	if small() {
		large, many = 64<<10, 5
	}
	for _, n := range []int{large / 4, large / 4096} {
		for _, out := range []bool{false, true} {
			name := map[bool]string{false: "in", true: "out"}[out]
			measure(b, fmt.Sprintf("%s/%d", name, n), 1e-9*float64(n), "B", func(g bench, s device.Stream) func() error {
				at := device.Pointer(g.operand(s, n))
				host, err := g.AllocHost(n)
				g.must(err)
				g.Cleanup(func() { g.must(g.FreeHost(host)) })
				if out {
					return func() error { return s.Out(host, at) }
				}
				return func() error { return s.In(at, host) }
			})
		}
	}
	measure(b, fmt.Sprintf("within/%d", large), 1e-9*float64(large), "B", prepared(large, large)(Copy(Float32, large/4)))
	n := large / 8 // the addition reads two numbers and writes one
	measure(b, fmt.Sprintf("addition/%d", n), 12e-9*float64(n), "B", prepared(4*n, 4*n, 4*n)(Binary(Float32, "+", n, n, n)))
	little := prepared(4, 4)(Copy(Float32, 1))
	measure(b, "launch/1", 0, "", little)
	measure(b, "launch_and_wait/1", 0, "", func(g bench, s device.Stream) func() error {
		put := little(g, s)
		return func() error {
			err := put()
			g.await(s)
			return err
		}
	})
	measure(b, fmt.Sprintf("replay/%d", many), 0, "", func(g bench, s device.Stream) func() error {
		put := little(g, s)
		recorded, err := s.Capture(func() error {
			for range many {
				if err := put(); err != nil {
					return err
				}
			}
			return nil
		})
		g.must(err)
		return func() error { return s.Replay(recorded) }
	})
}
