package ptx_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/plx-run/plx/internal/ptx"
)

// A bench is a module and a memory for one test.
type bench struct {
	t      testing.TB
	memory *ptx.Memory
	module *ptx.Module
}

func newBench(t testing.TB, file string) *bench {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return benchOf(t, string(text))
}

func benchOf(t testing.TB, text string) *bench {
	t.Helper()
	module, err := ptx.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, ptx.NewMemory(1 << 30), module}
}

// put allocates memory with values in it.
func (b *bench) put(values any) uint64 {
	b.t.Helper()
	p, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		b.t.Fatal(err)
	}
	at := b.room(len(p))
	if err := b.memory.Write(at, p); err != nil {
		b.t.Fatal(err)
	}
	return at
}

// room allocates memory.
func (b *bench) room(size int) uint64 {
	b.t.Helper()
	at, err := b.memory.Alloc(uint64(size))
	if err != nil {
		b.t.Fatal(err)
	}
	return at
}

// get reads values.
func (b *bench) get(at uint64, values any) {
	b.t.Helper()
	p := make([]byte, binary.Size(values))
	if err := b.memory.Read(at, p); err != nil {
		b.t.Fatal(err)
	}
	if _, err := binary.Decode(p, binary.LittleEndian, values); err != nil {
		b.t.Fatal(err)
	}
}

// launch runs a kernel.
func (b *bench) launch(name string, grid, block [3]uint32, shared uint32, values ...any) error {
	b.t.Helper()
	k, err := b.module.Kernel(name)
	if err != nil {
		b.t.Fatal(err)
	}
	return k.Launch(b.memory, grid, block, shared, params(values...))
}

// params lays parameters out, each aligned to its size.
func params(values ...any) (p []byte) {
	for _, v := range values {
		if n, ok := v.(int); ok {
			v = int32(n)
		}
		for len(p)%binary.Size(v) != 0 {
			p = append(p, 0)
		}
		var err error
		if p, err = binary.Append(p, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return p
}

func (b *bench) run(name string, grid, block [3]uint32, shared uint32, params ...any) {
	b.t.Helper()
	if err := b.launch(name, grid, block, shared, params...); err != nil {
		b.t.Fatal(err)
	}
}

func floats(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

func same[T comparable](t *testing.T, got, want []T) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("element %d is %v, want %v", i, got[i], want[i])
		}
	}
}

func fma(a, b, c float32) float32 {
	// Exact: a float64 has room for the product, and big enough tests would show a double rounding.
	return float32(math.FMA(float64(a), float64(b), float64(c)))
}

func TestAdd(t *testing.T) {
	b := newBench(t, "vector.ptx")
	const n = 1000
	x, y, z := floats(n, 1), floats(n, 2), make([]float32, n)
	at := b.room(4 * n)
	b.run("add", [3]uint32{4, 1, 1}, [3]uint32{256, 1, 1}, 0, at, b.put(x), b.put(y), n)
	b.get(at, z)
	for i := range z {
		if z[i] != x[i]+y[i] {
			t.Fatalf("element %d is %v, want %v", i, z[i], x[i]+y[i])
		}
	}
}

func TestSaxpy(t *testing.T) {
	b := newBench(t, "vector.ptx")
	const n = 5000
	x, y := floats(n, 1), floats(n, 2)
	at := b.put(y)
	b.run("saxpy", [3]uint32{3, 1, 1}, [3]uint32{96, 1, 1}, 0, at, b.put(x), float32(1.7), n)
	got := make([]float32, n)
	b.get(at, got)
	for i := range y {
		y[i] = fma(1.7, x[i], y[i])
	}
	same(t, got, y)
}

func TestVectors(t *testing.T) {
	b := newBench(t, "vector.ptx")
	const n = 77
	x := floats(4*n, 1)
	at := b.room(16 * n)
	b.run("scale4", [3]uint32{1, 1, 1}, [3]uint32{96, 1, 1}, 0, at, b.put(x), float32(-3), n)
	got := make([]float32, 4*n)
	b.get(at, got)
	for i := range x {
		x[i] *= -3
	}
	same(t, got, x)
}

func TestCollatz(t *testing.T) {
	b := newBench(t, "vector.ptx")
	const n = 300
	at := b.room(4 * n)
	b.run("collatz", [3]uint32{3, 1, 1}, [3]uint32{128, 1, 1}, 0, at, n)
	got, want := make([]uint32, n), make([]uint32, n)
	for i := range want {
		for v := uint64(i + 1); v != 1; want[i]++ {
			if v&1 == 1 {
				v = 3*v + 1
			} else {
				v /= 2
			}
		}
	}
	b.get(at, got)
	same(t, got, want)
}

func TestHorner(t *testing.T) {
	b := newBench(t, "vector.ptx")
	const n = 64
	x := floats(n, 3)
	at := b.room(4 * n)
	b.run("horner", [3]uint32{1, 1, 1}, [3]uint32{n, 1, 1}, 0, at, b.put(x), n)
	got, want := make([]float32, n), make([]float32, n)
	for i := range want {
		want[i] = -x[i]
		if i&1 == 1 {
			want[i] = 0
			for _, c := range []float32{0.25, -1.5, 2, 0.125, 7} {
				want[i] = fma(want[i], x[i], c)
			}
		}
	}
	b.get(at, got)
	same(t, got, want)
}

func TestHistogram(t *testing.T) {
	b := newBench(t, "vector.ptx")
	const n = 1000
	x := make([]byte, n)
	want, total := make([]uint32, 8), uint32(5)
	for i := range x {
		x[i] = byte(i * i)
		want[x[i]&7]++
		total += uint32(x[i])
	}
	at := b.put(make([]uint32, 8))
	b.run("histogram", [3]uint32{8, 1, 1}, [3]uint32{128, 1, 1}, 0, at, b.put(x), n)
	got, sum := make([]uint32, 8), make([]uint32, 1)
	b.get(at, got)
	same(t, got, want)
	address, size, err := b.module.Global(b.memory, "total")
	if err != nil || size != 4 {
		t.Fatal(size, err)
	}
	b.get(address, sum)
	same(t, sum, []uint32{total})
}

func TestLocalArray(t *testing.T) {
	b := newBench(t, "vector.ptx")
	const n = 50
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(i * 5)
	}
	at := b.room(4 * n)
	b.run("local", [3]uint32{1, 1, 1}, [3]uint32{64, 1, 1}, 0, at, b.put(x), n)
	got, want := make([]int32, n), make([]int32, n)
	for i := range want {
		j := (int(x[i]) + i) & 15
		want[i] = int32(j * i)
		if j == int(x[i]&15) {
			want[i] += 1000
		}
	}
	b.get(at, got)
	same(t, got, want)
}

func TestMatmul(t *testing.T) {
	b := newBench(t, "block.ptx")
	const n = 48
	x, y := floats(n*n, 1), floats(n*n, 2)
	at := b.room(4 * n * n)
	b.run("matmul", [3]uint32{n / 16, n / 16, 1}, [3]uint32{16, 16, 1}, 0, at, b.put(x), b.put(y), n)
	got, want := make([]float32, n*n), make([]float32, n*n)
	for i := range n {
		for j := range n {
			for k := range n {
				want[i*n+j] = fma(x[i*n+k], y[k*n+j], want[i*n+j])
			}
		}
	}
	b.get(at, got)
	same(t, got, want)
}

func TestReduce(t *testing.T) {
	b := newBench(t, "block.ptx")
	const n, threads = 900, 256
	x := floats(n, 1)
	at := b.room(16)
	b.run("reduce", [3]uint32{4, 1, 1}, [3]uint32{threads, 1, 1}, 4*threads, at, b.put(x), n)
	got, want := make([]float32, 4), make([]float32, 4)
	for k := range want {
		part := make([]float32, threads)
		copy(part, x[k*threads:])
		for half := threads / 2; half > 0; half /= 2 {
			for i := range half {
				part[i] += part[i+half]
			}
		}
		want[k] = part[0]
	}
	b.get(at, got)
	same(t, got, want)
}

func TestShuffle(t *testing.T) {
	b := newBench(t, "block.ptx")
	x := floats(128, 1)
	at := b.room(16)
	b.run("shuffle", [3]uint32{2, 1, 1}, [3]uint32{64, 1, 1}, 0, at, b.put(x))
	got, want := make([]float32, 4), make([]float32, 4)
	for k := range want {
		part := x[32*k:][:32]
		for d := 16; d > 0; d /= 2 {
			for i := range d {
				part[i] += part[i+d]
			}
		}
		want[k] = part[0]
	}
	b.get(at, got)
	same(t, got, want)
}

func TestBallot(t *testing.T) {
	b := newBench(t, "block.ptx")
	x := make([]int32, 64)
	want := make([]uint32, 64)
	for i := range x {
		x[i] = int32(i*37%97 - 20)
		v := x[i]
		for i&1 == 1 && v > 10 {
			v -= 7
		}
		if v > 5 {
			want[i/32*32] |= 1 << (i % 32)
		}
	}
	for i := range want {
		want[i] = want[i/32*32]
	}
	at := b.room(4 * 64)
	b.run("ballot", [3]uint32{1, 1, 1}, [3]uint32{64, 1, 1}, 0, at, b.put(x))
	got := make([]uint32, 64)
	b.get(at, got)
	same(t, got, want)
}

// The committed PTX is what its source compiles to.
func TestKernelsAreUpToDate(t *testing.T) {
	version, err := exec.Command("clang-14", "--version").Output()
	if err != nil || !bytes.Contains(version, []byte("version 14.0.6")) {
		t.Skipf("there is no clang 14.0.6: %v", err)
	}
	fresh := t.TempDir()
	if out, err := exec.Command("testdata/compile", fresh).CombinedOutput(); err != nil {
		t.Fatalf("testdata/compile: %v: %s", err, out)
	}
	for _, file := range []string{"block.ptx", "vector.ptx"} {
		got, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(fresh, file))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v: run testdata/compile", file, err)
		}
	}
}

// Launches of one kernel at the same time, on one memory and on several.
func TestLaunchesAtTheSameTime(t *testing.T) {
	b := newBench(t, "block.ptx")
	memories := []*ptx.Memory{b.memory, b.memory, ptx.NewMemory(1 << 20), ptx.NewMemory(1 << 20)}
	var done sync.WaitGroup
	for i, m := range memories {
		own := &bench{t, m, b.module}
		x, at := own.put(floats(256, uint64(i))), own.room(4)
		want := make([]float32, 1)
		own.run("reduce", [3]uint32{1, 1, 1}, [3]uint32{256, 1, 1}, 1024, at, x, 256)
		own.get(at, want)
		done.Go(func() {
			for range 20 {
				if err := own.launch("reduce", [3]uint32{1, 1, 1}, [3]uint32{256, 1, 1}, 1024, at, x, 256); err != nil {
					t.Error(err)
				}
			}
		})
		defer func() {
			got := make([]float32, 1)
			own.get(at, got)
			same(t, got, want)
		}()
	}
	done.Wait()
}
