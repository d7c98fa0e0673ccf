// Command matmul multiplies two matrices on all workers, in two ways. It uses
// only the collectives of package trainer:
//
//	plx launch --hosts resources.txt ./examples/matmul --size 2048
//
// By rows: every worker has all of B and some rows of A, and the chief (worker
// 0) gathers the rows of the product C. By reduction: every worker has some
// columns of A and the corresponding rows of B, and an all-reduce adds the
// workers' products. The chief compares both results with a product that it
// computes alone. The exercise is taken from the project pathway2ai.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"time"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/random"
	"gonum.org/v1/gonum/blas"
	"gorgonia.org/gorgonia"
)

var size = flag.Int("size", 1024, "rows and columns `n` of the matrices")

// largest is the greatest allowed value of --size. At this size each matrix
// takes 1 GiB.
const largest = 1 << 14

func main() { trainer.Main(train) }

// train runs on each worker.
func train(ctx context.Context, job *trainer.Job) error {
	if *size < 1 || *size > largest {
		return fmt.Errorf("--size is %d: want 1 to %d", *size, largest)
	}
	m := newMultiplication(*size, job.NumWorkers())
	m.join(job)
	if err := m.check("by rows", func() ([]float32, error) { return m.byRows(ctx) }); err != nil {
		return err
	}
	return m.check("by reduction", func() ([]float32, error) { return m.byReduction(ctx) })
}

// newMultiplication divides n rows into one part for each worker. All parts
// have the same size; rows of zeros fill up the last part.
func newMultiplication(n, workers int) *multiplication {
	part := (n + workers - 1) / workers
	return &multiplication{n: n, part: part, padded: part * workers}
}

// multiplication is the product C = A B of two n by n matrices, in row-major
// order. Only the chief (worker 0) has a, b and want, the expected product.
type multiplication struct {
	job             *trainer.Job
	n, part, padded int
	a, b, want      []float32
}

// join sets the job and, on the chief, generates the matrices and computes the
// expected product.
func (m *multiplication) join(job *trainer.Job) {
	m.job = job
	if !job.IsChief() {
		return
	}
	m.a, m.b = matrix(job.Seed(), "a", m.n), matrix(job.Seed(), "b", m.n)
	m.want = make([]float32, m.n*m.n)
	multiply(m.n, m.n, m.n, m.a, m.b, m.want)
}

// check calls do, which multiplies on all workers; how describes the method.
// The chief (worker 0) compares the result with its own product and prints the
// largest difference. check returns an error if that difference is too large.
func (m *multiplication) check(how string, do func() ([]float32, error)) error {
	begin := time.Now()
	c, err := do()
	if err != nil || !m.job.IsChief() {
		return err
	}
	furthest := 0.0
	for i, want := range m.want {
		furthest = max(furthest, math.Abs(float64(c[i]-want)))
	}
	// Each element is a sum of n products of numbers below 1. The workers add
	// the products in another order than the chief, so rounding differs.
	if bound := 1e-6 * float64(m.n); !(furthest <= bound) {
		return fmt.Errorf("%s: C differs by %g from the chief's own product, want at most %g", how, furthest, bound)
	}
	_, err = fmt.Printf("%-12s | %d workers | %.1f ms | largest difference %.2g | ok\n",
		how, m.job.NumWorkers(), time.Since(begin).Seconds()*1000, furthest)
	return err
}

// byRows multiplies on all workers, each with some rows of A.
func (m *multiplication) byRows(ctx context.Context) ([]float32, error) {
	b := make([]float32, m.n*m.n)
	copy(b, m.b)
	if err := m.job.Broadcast(ctx, b, 0); err != nil {
		return nil, err
	}
	rows, all := make([]float32, m.part*m.n), make([]float32, 0)
	if m.job.IsChief() {
		all = make([]float32, m.padded*m.n)
		copy(all, m.a)
	}
	if err := m.job.Scatter(ctx, all, rows, 0); err != nil {
		return nil, err
	}
	product := make([]float32, m.part*m.n)
	multiply(m.part, m.n, m.n, rows, b, product)
	return all, m.job.Gather(ctx, product, all, 0)
}

// byReduction multiplies on all workers, each with some columns of A and the
// corresponding rows of B.
func (m *multiplication) byReduction(ctx context.Context) ([]float32, error) {
	var columns, rows []float32
	if m.job.IsChief() {
		columns, rows = transposed(m.a, m.n, m.padded), make([]float32, m.padded*m.n)
		copy(rows, m.b)
	}
	own, below := make([]float32, m.part*m.n), make([]float32, m.part*m.n)
	if err := m.job.Scatter(ctx, columns, own, 0); err != nil {
		return nil, err
	}
	if err := m.job.Scatter(ctx, rows, below, 0); err != nil {
		return nil, err
	}
	c := make([]float32, m.n*m.n)
	gorgonia.WhichBLAS().Sgemm(blas.Trans, blas.NoTrans, m.n, m.n, m.part, 1, own, m.n, below, m.n, 0, c, m.n)
	return c, m.job.AllReduce(ctx, c)
}

// transposed returns the transpose of a, with rows of zeros appended up to the
// given number of rows.
func transposed(a []float32, n, rows int) []float32 {
	t := make([]float32, rows*n)
	for i := range n {
		for j := range n {
			t[j*n+i] = a[i*n+j]
		}
	}
	return t
}

// multiply sets c, of shape (m, n), to the product of a (m, k) and b (k, n).
func multiply(m, k, n int, a, b, c []float32) {
	gorgonia.WhichBLAS().Sgemm(blas.NoTrans, blas.NoTrans, m, n, k, 1, a, k, b, n, 0, c, n)
}

// matrix returns an n by n matrix of pseudorandom elements in [-1, 1), which
// depend only on seed and name.
func matrix(seed uint64, name string, n int) []float32 {
	s, x := random.New(seed, name), make([]float32, n*n)
	for i := range x {
		u, _ := s.Pair(uint64(i))
		x[i] = float32(2*u - 1)
	}
	return x
}
