package sparse

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		rows Rows[float32]
		want string // in the error; none: accepted
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

func TestSplit(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	for range 300 {
		r := someRows[float32](random, 10, 60, 3, random.Float64())
		bounds := []int64{10}
		for range random.IntN(5) {
			bounds = append(bounds, bounds[len(bounds)-1]+random.Int64N(20))
		}
		bounds = append(bounds, max(60, bounds[len(bounds)-1]))
		pieces, err := r.Split(bounds, nil)
		if err != nil || len(pieces) != len(bounds)-1 {
			t.Fatalf("%d pieces of %v: %v", len(pieces), bounds, err)
		}
		whole := Rows[float32]{Width: 3}
		for i, piece := range pieces {
			if err := piece.Check(bounds[i], bounds[i+1], 3); err != nil {
				t.Fatal(err)
			}
			same(t, piece, r.Cut(bounds[i], bounds[i+1]))
			whole = whole.add(piece)
		}
		same(t, whole, r)
	}
}

// Pieces are the rows themselves, and growing one leaves the next alone.
func TestSplitDoesNotCopy(t *testing.T) {
	r := Rows[float32]{[]int64{1, 2, 3}, []float32{1, 2, 3}, 1}
	pieces, err := r.Split([]int64{0, 2, 4}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pieces[1].Values[0] = 20
	pieces[0] = pieces[0].addBoth(9, []float32{9}, []float32{9})
	same(t, r, Rows[float32]{[]int64{1, 2, 3}, []float32{1, 20, 3}, 1})
}

func TestSplitRefuses(t *testing.T) {
	r := Rows[float32]{[]int64{3, 8}, []float32{1, 2}, 1}
	for _, bounds := range [][]int64{nil, {0}, {0, 9, 5, 10}, {4, 9}, {0, 8}} {
		if _, err := r.Split(bounds, nil); err == nil {
			t.Errorf("bounds %v: accepted", bounds)
		}
	}
	if pieces, err := r.Split([]int64{3, 9}, nil); err != nil || len(pieces) != 1 {
		t.Errorf("exact bounds: %v", err)
	}
	if pieces, err := (Rows[float32]{Width: 1}).Split([]int64{4, 4, 4}, nil); err != nil || len(pieces) != 2 {
		t.Errorf("no rows: %d pieces, %v", len(pieces), err)
	}
}

func TestSumOfSquaresByRow(t *testing.T) {
	r := Rows[float32]{[]int64{1, 5}, []float32{1, 2, 3, -4, 0, 5}, 3}
	got := r.SumOfSquares([]float64{7})
	sameBits(t, got, []float64{7, 14, 41})
}
