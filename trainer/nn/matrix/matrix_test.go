package matrix

import (
	"math"
	"math/rand/v2"
	"testing"
)

// at returns element (i, j) of a matrix, transposed or not.
func at(a Matrix[float64], i, j int) float64 {
	if a.transposed {
		i, j = j, i
	}
	return a.data[i*a.stride+j]
}

// Products of strided and transposed matrices must equal a naive triple loop.
func TestMul(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	numbers := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = random.NormFloat64()
		}
		return x
	}
	matrix := func(rows, columns int) Matrix[float64] {
		if random.IntN(2) == 0 {
			rows, columns = columns, rows
			stride := columns + random.IntN(3)
			return Strided(numbers(rows*stride), stride).T()
		}
		stride := columns + random.IntN(3)
		return Strided(numbers(rows*stride), stride)
	}
	for range 100 {
		m, n, k := 1+random.IntN(6), 1+random.IntN(6), 1+random.IntN(6)
		a, b, c, beta := matrix(m, k), matrix(k, n), Whole(numbers(m*n), n), float64(random.IntN(2))
		want := make([]float64, m*n)
		for i := range m {
			for j := range n {
				want[i*n+j] = beta * c.Row(i, n)[j]
				for l := range k {
					want[i*n+j] += at(a, i, l) * at(b, l, j)
				}
			}
		}
		Mul(m, n, k, a, b, beta, c)
		for i, x := range c.data {
			if math.Abs(x-want[i]) > 1e-12 {
				t.Fatalf("%d x %d x %d: element %d is %v, want %v", m, k, n, i, x, want[i])
			}
		}
	}
}

func TestSumRows(t *testing.T) {
	out, x := make([]float32, 2), make([]float32, 6)
	Fill(x, []float32{1, 2})
	SumRows(out, x, make([]float64, 2))
	if out[0] != 3 || out[1] != 6 {
		t.Errorf("%v, want [3 6]", out)
	}
}
