package main

import (
	"math"
	"slices"
	"testing"
)

// TestMultiply compares products of matrices of many shapes with plain sums.
func TestMultiply(t *testing.T) {
	for _, c := range []struct{ m, k, n int }{{1, 1, 1}, {2, 3, 4}, {5, 1, 2}, {7, 7, 7}} {
		a, b := matrix(1, "a", 8)[:c.m*c.k], matrix(1, "b", 8)[:c.k*c.n]
		got := make([]float32, c.m*c.n)
		multiply(c.m, c.k, c.n, a, b, got)
		for i := range c.m {
			for j := range c.n {
				want := 0.0
				for l := range c.k {
					want += float64(a[i*c.k+l]) * float64(b[l*c.n+j])
				}
				if math.Abs(float64(got[i*c.n+j])-want) > 1e-6 {
					t.Errorf("%+v: element %d,%d is %v, want %v", c, i, j, got[i*c.n+j], want)
				}
			}
		}
	}
}

// The appended rows are zero, so they add nothing to a product.
func TestTransposedIsPadded(t *testing.T) {
	a := []float32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	for rows, want := range map[int][]float32{
		3: {1, 4, 7, 2, 5, 8, 3, 6, 9},
		5: {1, 4, 7, 2, 5, 8, 3, 6, 9, 0, 0, 0, 0, 0, 0},
	} {
		if got := transposed(a, 3, rows); !slices.Equal(got, want) {
			t.Errorf("%d rows: %v, want %v", rows, got, want)
		}
	}
}

// Parts are equal, together hold all rows, and are no larger than necessary.
func TestPart(t *testing.T) {
	for n := 1; n <= 12; n++ {
		for workers := 1; workers <= 15; workers++ {
			m := newMultiplication(n, workers)
			if m.padded != m.part*workers || m.padded < n || m.padded-workers >= n {
				t.Errorf("%d rows over %d workers: parts of %d, %d in all", n, workers, m.part, m.padded)
			}
		}
	}
}

func TestMatrix(t *testing.T) {
	a := matrix(1, "a", 50)
	if least, most := slices.Min(a), slices.Max(a); least < -1 || least > -0.99 || most < 0.99 || most >= 1 {
		t.Errorf("elements are %v to %v", least, most)
	}
	if !slices.Equal(a, matrix(1, "a", 50)) {
		t.Error("a matrix is not the same twice")
	}
	if slices.Equal(a, matrix(2, "a", 50)) || slices.Equal(a, matrix(1, "b", 50)) {
		t.Error("another seed or name gives the same matrix")
	}
}
