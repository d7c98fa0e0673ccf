//go:build linux

package process

import (
	"slices"
	"testing"
)

func TestShareOfCores(t *testing.T) {
	cores := []int{0, 1, 2, 3, 8, 9, 10}
	for _, test := range []struct {
		cores []int
		i, n  int
		want  []int
	}{
		{cores, 0, 1, cores}, {cores, 0, 2, []int{0, 1, 2}}, {cores, 1, 2, []int{3, 8, 9, 10}},
		{cores, 6, 7, []int{10}}, {cores[:2], 0, 5, []int{0}}, {cores[:2], 3, 5, []int{1}},
		{nil, 0, 1, nil}, {cores, 2, 2, nil},
	} {
		if got := ShareOfCores(test.cores, test.i, test.n); !slices.Equal(got, test.want) {
			t.Errorf("ShareOfCores(%v, %d, %d) = %v, want %v", test.cores, test.i, test.n, got, test.want)
		}
	}
	for n := 1; n <= len(cores); n++ { // disjoint and complete
		var all []int
		for i := range n {
			all = append(all, ShareOfCores(cores, i, n)...)
		}
		if !slices.Equal(all, cores) {
			t.Errorf("%d workers share %v as %v", n, cores, all)
		}
	}
}
