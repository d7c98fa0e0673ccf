package sparse

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestCheckRejectsInvalidRows(t *testing.T) {
	for _, c := range []struct {
		rows Rows[float32]
		want string // text in the expected error; empty means that Check accepts the rows
	}{
		{Rows[float32]{Width: 2}, ""},
		{Rows[float32]{[]int64{5, 6, 9}, make([]float32, 6), 2}, ""},
		{Rows[float32]{[]int64{5}, make([]float32, 3), 3}, "width 3"},
		{Rows[float32]{[]int64{5}, make([]float32, 3), 2}, "3 values"},
		{Rows[float32]{[]int64{4}, make([]float32, 2), 2}, "row 4 is outside [5, 10)"},
		{Rows[float32]{[]int64{5, 10}, make([]float32, 4), 2}, "row 10 is outside [5, 10)"},
		{Rows[float32]{[]int64{6, 6}, make([]float32, 4), 2}, "row 6 after row 6"},
		{Rows[float32]{[]int64{7, 6}, make([]float32, 4), 2}, "row 6 after row 7"},
	} {
		err := c.rows.Check(5, 10, 2)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: got %v, want %q", c.rows, err, c.want)
		}
	}
}

// Cut must return exactly the rows within the bounds. Together the pieces must
// contain each row once.
func TestCutReturnsRowsInRange(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	for range 300 {
		r := someRows[float32](random, 10, 60, 3, random.Float64())
		whole := Rows[float32]{Width: 3}
		for lo := int64(10); lo < 60; {
			hi := lo + random.Int64N(20)
			piece := r.Cut(lo, hi)
			if err := piece.Check(lo, hi, 3); err != nil {
				t.Fatal(err)
			}
			whole, lo = whole.add(piece), hi
		}
		same(t, whole, r)
	}
}

// Cut must share the memory of the rows, but appending to one piece must not
// overwrite the next piece.
func TestCutDoesNotCopy(t *testing.T) {
	r := Rows[float32]{[]int64{1, 2, 3}, []float32{1, 2, 3}, 1}
	first, second := r.Cut(0, 2), r.Cut(2, 4)
	second.Values[0] = 20
	first.addBoth(9, []float32{9}, []float32{9})
	same(t, r, Rows[float32]{[]int64{1, 2, 3}, []float32{1, 20, 3}, 1})
}

func TestSumOfSquaresByRow(t *testing.T) {
	r := Rows[float32]{[]int64{1, 5}, []float32{1, 2, 3, -4, 0, 5}, 3}
	got := r.SumOfSquares([]float64{7})
	sameBits(t, got, []float64{7, 14, 41})
}
