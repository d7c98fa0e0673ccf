//go:build linux && !nodlopen && (amd64 || arm64)

package blas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/ebitengine/purego"
	gblas "gonum.org/v1/gonum/blas"
)

// bothRoutes returns the library's Fortran functions and its CBLAS functions.
// It uses the library that openBLAS loads.
func bothRoutes[T number](t testing.TB, precision string) (quick, cblas products[T]) {
	t.Helper()
	handle := openHandle(t)
	cblas, err := bindCBLAS[T](handle, precision)
	if err != nil {
		t.Fatal(err)
	}
	quick, ok := bindFortran[T](handle, precision)
	if !ok {
		t.Fatalf("the library has no %sgemm_ and %sgemv_", precision, precision)
	}
	return quick, cblas
}

func openHandle(t testing.TB) uintptr {
	t.Helper()
	openBLAS(t)
	_, lib, err := choose(librarySpec(), 1)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := purego.Dlopen(lib.Path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	return handle
}

func TestFortranAndCBLASGiveTheSameBits(t *testing.T) {
	t.Run("float32", func(t *testing.T) { checkRoutes[float32](t, "s") })
	t.Run("float64", func(t *testing.T) { checkRoutes[float64](t, "d") })
}

func checkRoutes[T number](t *testing.T, precision string) {
	quick, cblas := bothRoutes[T](t, precision)
	r := rand.New(rand.NewPCG(11, 12))
	for i := range 200 {
		g := randomGemm(r)
		if i%20 == 0 { // every 20th product has a k longer than the block of k in a library's kernel
			g = exactGemm(g.tA, g.tB, 1+r.IntN(40), 1+r.IntN(40), 300+r.IntN(2000))
		}
		if g.m > 0 && g.n > 0 && g.k > 0 {
			routeGemm(t, r, g, quick, cblas)
		}
		if v := randomGemv(r); v.m > 0 && v.n > 0 && i%4 == 0 {
			routeGemv(t, r, v, quick, cblas)
		}
	}
	for _, s := range [][3]int{{4, 4, 4}, {64, 256, 1024}, {64, 10, 256}, {1024, 256, 64}, {64, 1024, 256}} {
		for _, tA := range transposes[:2] { // the random products above cover the third, ConjTrans
			for _, tB := range transposes[:2] {
				routeGemm(t, r, exactGemm(tA, tB, s[0], s[1], s[2]), quick, cblas)
			}
		}
	}
}

// exactGemm returns a product of matrices without gaps between their rows.
func exactGemm(tA, tB gblas.Transpose, m, n, k int) gemmCase {
	c := gemmCase{tA: tA, tB: tB, m: m, n: n, k: k, lda: k, ldb: n, ldc: n, lenA: m * k, lenB: k * n, lenC: m * n, alpha: 1}
	if tA != gblas.NoTrans {
		c.lda = m
	}
	if tB != gblas.NoTrans {
		c.ldb = k
	}
	return c
}

func routeGemm[T number](t *testing.T, r *rand.Rand, g gemmCase, p, q products[T]) {
	t.Helper()
	a, b, c := random[T](r, g.lenA), random[T](r, g.lenB), random[T](r, g.lenC)
	d := append([]T(nil), c...)
	p.gemm(g.tA, g.tB, g.m, g.n, g.k, T(g.alpha), &a[0], g.lda, &b[0], g.ldb, T(g.beta), &c[0], g.ldc)
	q.gemm(g.tA, g.tB, g.m, g.n, g.k, T(g.alpha), &a[0], g.lda, &b[0], g.ldb, T(g.beta), &d[0], g.ldc)
	if !sameBits(c, d) {
		t.Fatalf("%+v: the two routes differ", g)
	}
}

func routeGemv[T number](t *testing.T, r *rand.Rand, v gemvCase, p, q products[T]) {
	t.Helper()
	a, x, y := random[T](r, v.lenA), random[T](r, v.lenX), random[T](r, v.lenY)
	z := append([]T(nil), y...)
	p.gemv(v.tA, v.m, v.n, T(v.alpha), &a[0], v.lda, &x[0], v.incX, T(v.beta), &y[0], v.incY)
	q.gemv(v.tA, v.m, v.n, T(v.alpha), &a[0], v.lda, &x[0], v.incX, T(v.beta), &z[0], v.incY)
	if !sameBits(y, z) {
		t.Fatalf("%+v: the two routes differ", v)
	}
}

// A library without Fortran functions keeps its CBLAS functions.
func TestLibraryWithoutFortranNamesKeepsCBLAS(t *testing.T) {
	handle := openHandle(t)
	single, err := bindCBLAS[float32](handle, "s")
	if err != nil {
		t.Fatal(err)
	}
	double, err := bindCBLAS[float64](handle, "d")
	if err != nil {
		t.Fatal(err)
	}
	other, err := purego.Dlopen("libm.so.6", purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := bindFortran[float32](other, "s"); ok {
		t.Fatal("the mathematics library has products")
	}
	l := &cblas{single: single, double: double}
	l.shorten(other)
	if err := selfCheck(l); err != nil {
		t.Error(err)
	}
	r, quick := rand.New(rand.NewPCG(13, 14)), openBLAS(t)
	for range 50 {
		checkGemm(t, r, randomGemm(r), l.Sgemm, quick.Sgemm)
		checkGemm(t, r, randomGemm(r), l.Dgemm, quick.Dgemm)
	}
}

// agree returns false if one bit in one product differs.
func TestAgreeRefusesOtherBits(t *testing.T) {
	quick, cblas := bothRoutes[float32](t, "s")
	if !agree(quick, cblas) {
		t.Fatal("the two routes differ")
	}
	off := quick
	off.gemm = func(tA, tB gblas.Transpose, m, n, k int, alpha float32, a *float32, lda int, b *float32, ldb int, beta float32, c *float32, ldc int) {
		quick.gemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		if k == 1100 {
			*c = math.Nextafter32(*c, 9)
		}
	}
	if agree(off, cblas) {
		t.Error("a product that differs by one bit passed")
	}
	off = quick
	off.gemv = func(tA gblas.Transpose, m, n int, alpha float32, a *float32, lda int, x *float32, incX int, beta float32, y *float32, incY int) {
		quick.gemv(gblas.NoTrans, m, n, alpha, a, lda, x, incX, beta, y, incY)
	}
	if agree(off, cblas) {
		t.Error("a vector product that never transposes passed")
	}
}

// Several goroutines call the library with different sizes and factors, while
// their stacks grow and the garbage collector runs. Wrong results would show
// that two calls share arguments.
func TestConcurrentCallsDoNotShareArguments(t *testing.T) {
	quick, _ := bothRoutes[float64](t, "d")
	var lanes sync.WaitGroup
	for lane := range 6 {
		lanes.Go(func() {
			r := rand.New(rand.NewPCG(15, uint64(lane)))
			g := exactGemm(transposes[lane%2], transposes[lane/2%2], 3+lane, 20-lane, 5+2*lane)
			a, b := random[float64](r, g.lenA), random[float64](r, g.lenB)
			var want []float64
			for i := range 400 {
				c := make([]float64, g.lenC)
				grow(i % 40)
				quick.gemm(g.tA, g.tB, g.m, g.n, g.k, float64(lane+1), &a[0], g.lda, &b[0], g.ldb, 0, &c[0], g.ldc)
				if i == 0 {
					want = naive(g, float64(lane+1), a, b)
				}
				for j := range c {
					if !near(c[j], want[j], 100*g.k) {
						t.Errorf("lane %d, call %d: element %d is %v, want %v", lane, i, j, c[j], want[j])
						return
					}
				}
				if i%50 == 0 {
					runtime.GC()
				}
			}
		})
	}
	lanes.Wait()
}

// grow makes the goroutine's stack grow by n kilobytes.
func grow(n int) byte {
	var room [1024]byte
	room[n%len(room)] = byte(n)
	if n > 0 {
		room[0] += grow(n - 1)
	}
	return room[0]
}

// naive computes a product of matrices without gaps with three plain loops.
func naive(g gemmCase, alpha float64, a, b []float64) []float64 {
	c := make([]float64, g.m*g.n)
	for i := range g.m {
		for j := range g.n {
			for l := range g.k {
				x, y := a[i*g.k+l], b[l*g.n+j]
				if g.tA != gblas.NoTrans {
					x = a[l*g.m+i]
				}
				if g.tB != gblas.NoTrans {
					y = b[j*g.k+l]
				}
				c[i*g.n+j] += alpha * x * y
			}
		}
	}
	return c
}

// BenchmarkRoutes measures a call through Fortran and through CBLAS, from
// large products down to a product of almost no work.
func BenchmarkRoutes(b *testing.B) {
	quick, cblas := bothRoutes[float32](b, "s")
	for _, s := range [][3]int{{4, 4, 4}, {64, 10, 256}, {64, 256, 1024}} {
		m, n, k := s[0], s[1], s[2]
		x, w, y := make([]float32, m*k), make([]float32, k*n), make([]float32, m*n)
		for name, p := range map[string]products[float32]{"fortran": quick, "cblas": cblas} {
			b.Run(fmt.Sprintf("%dx%dx%d/%s", m, k, n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					p.gemm(gblas.NoTrans, gblas.NoTrans, m, n, k, 1, &x[0], k, &w[0], n, 0, &y[0], n)
				}
			})
		}
	}
}
