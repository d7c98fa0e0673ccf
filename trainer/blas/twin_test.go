//go:build linux && !nodlopen && (amd64 || arm64)

package blas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"

	gblas "gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// openBLAS loads the library that the tests compare with gonum. The
// environment variable PLX_BLAS names another library, as in a program.
func openBLAS(t testing.TB) *cblas {
	t.Helper()
	impl, lib, err := choose(librarySpec(), 1)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("needs OpenBLAS: %v", err)
	}
	c, ok := impl.(*cblas)
	if !ok {
		t.Skipf("needs a loaded library, PLX_BLAS is %s", lib)
	}
	t.Log(lib)
	return c
}

func librarySpec() string {
	if spec := os.Getenv("PLX_BLAS"); spec != "" {
		return spec
	}
	return "openblas"
}

type number interface{ float32 | float64 }

// near reports whether got equals want, except for rounding: the sum of k
// products of numbers below 1 may have been added in another order.
func near[T number](got, want T, k int) bool {
	if math.IsNaN(float64(want)) || math.IsNaN(float64(got)) {
		return math.IsNaN(float64(want)) == math.IsNaN(float64(got))
	}
	epsilon := 1.2e-7
	if _, double := any(got).(float64); double {
		epsilon = 2.3e-16
	}
	return math.Abs(float64(got-want)) <= epsilon*8*float64(k+4)
}

// random returns n random numbers in (-1, 1).
func random[T number](r *rand.Rand, n int) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = T(2*r.Float64() - 1)
	}
	return s
}

// gemmCase is one product of matrices. Its slices are exactly as long as the
// product needs.
type gemmCase struct {
	tA, tB                 gblas.Transpose
	m, n, k, lda, ldb, ldc int
	lenA, lenB, lenC       int
	alpha, beta            float64
	garbage/* C holds NaN */ bool
}

var transposes = []gblas.Transpose{gblas.NoTrans, gblas.Trans, gblas.ConjTrans}

func randomGemm(r *rand.Rand) gemmCase {
	c := gemmCase{
		tA: transposes[r.IntN(3)], tB: transposes[r.IntN(3)],
		m: size(r), n: size(r), k: size(r),
		alpha: []float64{1, -0.5, 0}[r.IntN(3)], beta: []float64{0, 1, 0.5}[r.IntN(3)],
	}
	rowsA, colsA, rowsB, colsB := c.m, c.k, c.k, c.n
	if c.tA != gblas.NoTrans {
		rowsA, colsA = colsA, rowsA
	}
	if c.tB != gblas.NoTrans {
		rowsB, colsB = colsB, rowsB
	}
	c.lda, c.ldb, c.ldc = stride(r, colsA), stride(r, colsB), stride(r, c.n)
	c.lenA, c.lenB, c.lenC = extent(rowsA, colsA, c.lda), extent(rowsB, colsB, c.ldb), extent(c.m, c.n, c.ldc)
	c.garbage = c.beta == 0
	return c
}

// size returns a random size: usually small, sometimes 0, sometimes larger
// than a tile of a library's kernel.
func size(r *rand.Rand) int {
	if r.IntN(4) == 0 {
		return r.IntN(200)
	}
	return r.IntN(20)
}

func stride(r *rand.Rand, cols int) int { return max(1, cols) + r.IntN(2)*r.IntN(5) }

func extent(rows, cols, ld int) int {
	if rows == 0 {
		return 0
	}
	return (rows-1)*ld + cols // gonum requires this length even if cols is 0
}

func TestGemmMatchesGonum(t *testing.T) {
	l := openBLAS(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		c := randomGemm(r)
		checkGemm(t, r, c, l.Sgemm, gonum.Implementation{}.Sgemm)
		checkGemm(t, r, c, l.Dgemm, gonum.Implementation{}.Dgemm)
	}
}

func checkGemm[T number](t *testing.T, r *rand.Rand, c gemmCase, got, want func(tA, tB gblas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int)) {
	t.Helper()
	a, b, c1 := random[T](r, c.lenA), random[T](r, c.lenB), random[T](r, c.lenC)
	if c.garbage {
		for i := range c.m {
			for j := range c.n {
				c1[i*c.ldc+j] = T(math.NaN())
			}
		}
	}
	c2 := append([]T(nil), c1...)
	got(c.tA, c.tB, c.m, c.n, c.k, T(c.alpha), a, c.lda, b, c.ldb, T(c.beta), c1, c.ldc)
	want(c.tA, c.tB, c.m, c.n, c.k, T(c.alpha), a, c.lda, b, c.ldb, T(c.beta), c2, c.ldc)
	for i := range c1 {
		if !near(c1[i], c2[i], c.k) {
			t.Fatalf("%T %+v: element %d is %v, gonum has %v", c1[0], c, i, c1[i], c2[i])
		}
	}
}

// gemvCase is one product of a matrix and a vector.
type gemvCase struct {
	tA                    gblas.Transpose
	m, n, lda, incX, incY int
	lenA, lenX, lenY      int
	alpha, beta           float64
	garbage/* y is NaN */ bool
}

func randomGemv(r *rand.Rand) gemvCase {
	c := gemvCase{
		tA: transposes[r.IntN(3)], m: r.IntN(400), n: r.IntN(400), // sizes below and above the constant smallest
		incX: []int{1, 2, -1, -3}[r.IntN(4)], incY: []int{1, 3, -1, -2}[r.IntN(4)],
		alpha: []float64{1, -0.5, 0}[r.IntN(3)], beta: []float64{0, 1, 0.5}[r.IntN(3)],
	}
	c.lda = stride(r, c.n)
	c.lenA = extent(c.m, c.n, c.lda)
	nX, nY := c.n, c.m
	if c.tA != gblas.NoTrans {
		nX, nY = nY, nX
	}
	c.lenX, c.lenY = extent(nX, 1, max(c.incX, -c.incX)), extent(nY, 1, max(c.incY, -c.incY))
	c.garbage = c.beta == 0 && c.m > 0 && c.n > 0
	return c
}

func TestGemvMatchesGonum(t *testing.T) {
	l := openBLAS(t)
	r := rand.New(rand.NewPCG(3, 4))
	for range 120 {
		c := randomGemv(r)
		checkGemv(t, r, c, l.Sgemv, gonum.Implementation{}.Sgemv)
		checkGemv(t, r, c, l.Dgemv, gonum.Implementation{}.Dgemv)
	}
}

func checkGemv[T number](t *testing.T, r *rand.Rand, c gemvCase, got, want func(tA gblas.Transpose, m, n int, alpha T, a []T, lda int, x []T, incX int, beta T, y []T, incY int)) {
	t.Helper()
	a, x, y1 := random[T](r, c.lenA), random[T](r, c.lenX), random[T](r, c.lenY)
	if c.garbage {
		for i := 0; i < len(y1); i += max(c.incY, -c.incY) {
			y1[i] = T(math.NaN())
		}
	}
	y2 := append([]T(nil), y1...)
	got(c.tA, c.m, c.n, T(c.alpha), a, c.lda, x, c.incX, T(c.beta), y1, c.incY)
	want(c.tA, c.m, c.n, T(c.alpha), a, c.lda, x, c.incX, T(c.beta), y2, c.incY)
	for i := range y1 {
		if !near(y1[i], y2[i], max(c.m, c.n)) {
			t.Fatalf("gemv %T %+v: element %d is %v, gonum has %v", y1[0], c, i, y1[i], y2[i])
		}
	}
}

// A call in which one size or slice is wrong by one panics as in gonum, and
// does not reach the C library.
func TestWrongShapesPanicLikeGonum(t *testing.T) {
	l := openBLAS(t)
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		c := randomGemm(r)
		wrong := []*int{&c.lda, &c.ldb, &c.ldc, &c.lenA, &c.lenB, &c.lenC, &c.m, &c.n, &c.k}[r.IntN(9)]
		*wrong = []int{-1, 0, *wrong - 1, *wrong + 1}[r.IntN(4)]
		if r.IntN(10) == 0 {
			c.tA = 'X'
		}
		call := func(gemm func(tA, tB gblas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int)) (said any) {
			defer func() { said = recover() }()
			gemm(c.tA, c.tB, c.m, c.n, c.k, 1, make([]float32, max(0, c.lenA)), c.lda, make([]float32, max(0, c.lenB)), c.ldb, 0, make([]float32, max(0, c.lenC)), c.ldc)
			return nil
		}
		got, want := call(l.Sgemm), call(gonum.Implementation{}.Sgemm)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%+v: panics with %v, gonum with %v", c, got, want)
		}
	}
}

func TestWrongVectorsPanicLikeGonum(t *testing.T) {
	l := openBLAS(t)
	r := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		c := randomGemv(r)
		wrong := []*int{&c.lda, &c.incX, &c.incY, &c.lenA, &c.lenX, &c.lenY, &c.m, &c.n}[r.IntN(8)]
		*wrong = []int{-1, 0, *wrong - 1, *wrong + 1}[r.IntN(4)]
		call := func(b interface {
			Sgemv(tA gblas.Transpose, m, n int, alpha float32, a []float32, lda int, x []float32, incX int, beta float32, y []float32, incY int)
		}) (said any) {
			defer func() { said = recover() }()
			b.Sgemv(c.tA, c.m, c.n, 1, make([]float32, max(0, c.lenA)), c.lda, make([]float32, max(0, c.lenX)), c.incX, 0, make([]float32, max(0, c.lenY)), c.incY)
			return nil
		}
		got, want := call(l), call(gonum.Implementation{})
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%+v: panics with %v, gonum with %v", c, got, want)
		}
	}
}

// Several goroutines call the library while the garbage collector runs. Each
// must compute the same bits as when it runs alone.
func TestConcurrentCallsGiveTheSameBits(t *testing.T) {
	l := openBLAS(t)
	r := rand.New(rand.NewPCG(9, 10))
	const m, n, k = 64, 256, 100
	a, b := random[float32](r, m*k), random[float32](r, k*n)
	product := func() []float32 {
		c := make([]float32, m*n)
		l.Sgemm(gblas.NoTrans, gblas.NoTrans, m, n, k, 1, a, k, b, n, 0, c, n)
		return c
	}
	want := product()
	var lanes sync.WaitGroup
	for range 8 {
		lanes.Go(func() {
			for range 20 {
				for i, v := range product() {
					if v != want[i] {
						t.Errorf("element %d is %v, alone it is %v", i, v, want[i])
						return
					}
				}
				runtime.GC()
			}
		})
	}
	lanes.Wait()
}

// BenchmarkSgemm64x1024x256 measures the product in the first layer of
// examples/mlp at its default sizes.
func BenchmarkSgemm64x1024x256(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	const m, k, n = 64, 1024, 256
	x, w, y := random[float32](r, m*k), random[float32](r, k*n), make([]float32, m*n)
	run := func(name string, gemm func(tA, tB gblas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				gemm(gblas.NoTrans, gblas.NoTrans, m, n, k, 1, x, k, w, n, 0, y, n)
			}
			b.ReportMetric(2*m*k*n*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
	run("loaded", openBLAS(b).Sgemm)
	run("gonum", gonum.Implementation{}.Sgemm)
}

// BenchmarkVector shows from which size on a loaded library computes a product
// with a vector faster than gonum. The constant smallest comes from it.
func BenchmarkVector(b *testing.B) {
	l, g := openBLAS(b), gonum.Implementation{}
	for _, n := range []int{64, 128, 192, 256} {
		a, x, y := make([]float32, n*n), make([]float32, n), make([]float32, n)
		b.Run(fmt.Sprintf("gemv/%d/loaded", n), func(b *testing.B) {
			for b.Loop() {
				l.single.gemv(gblas.NoTrans, n, n, 1, &a[0], n, &x[0], 1, 0, &y[0], 1)
			}
		})
		b.Run(fmt.Sprintf("gemv/%d/gonum", n), func(b *testing.B) {
			for b.Loop() {
				g.Sgemv(gblas.NoTrans, n, n, 1, a, n, x, 1, 0, y, 1)
			}
		})
	}
}
