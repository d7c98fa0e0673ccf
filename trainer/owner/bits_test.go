package owner

import (
	"fmt"
	"testing"

	"github.com/plx-run/plx/trainer/optimizer"
)

// Any number of workers, architecture and servers gives the bits of the twin,
// and everybody leaves in good order.
func TestBitsOfDense(t *testing.T) {
	for _, c := range []struct{ leaves, workers int }{
		{6, 1}, {6, 2}, {6, 3}, {6, 4}, {6, 5}, {6, 6}, {8, 1}, {8, 2}, {8, 4}, {8, 8},
	} {
		for _, where := range []struct {
			a       Architecture
			servers int
		}{{Servers, 1}, {Servers, 3}, {AllReduce, 0}, {AllReduce, 2}, {Hybrid, 1}} {
			t.Run(fmt.Sprintf("V%d/W%d/%s%d", c.leaves, c.workers, where.a, where.servers), func(t *testing.T) {
				t.Parallel()
				checkSteps(t, newJob(t, example(c.leaves, c.workers), where.a, where.servers), 6)
			})
		}
	}
}

// mixed has everything at once: two types, statistics, a table, a variable of
// several blocks, Adam, clipping and metrics.
func mixed(leaves, workers int) Declaration {
	d := example(leaves, workers)
	d.Optimizer = optimizer.Settings{Rule: optimizer.Adam, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	d.Variables = append(d.Variables,
		Variable{Name: "mean", Dtype: Float32, Shape: []int{7}, Update: optimizer.Average, Momentum: 0.9},
		Variable{Name: "table", Dtype: Float32, Shape: []int{41, 3}, Sparse: &Sparse{Average: true, First: RowInit{Kind: "uniform", A: -1, B: 1, Seed: 3}}},
		Variable{Name: "added", Dtype: Float32, Shape: []int{9, 2}, Sparse: &Sparse{}},
	)
	d.Clip, d.Metrics, d.BucketBytes = 50, 2, 4096
	return d
}

func TestBitsOfEverything(t *testing.T) {
	for _, c := range []struct {
		leaves  int
		workers []Range
	}{
		{6, ranges(6, 1)}, {6, ranges(6, 2)}, {6, ranges(6, 3)}, {6, ranges(6, 4)}, {6, ranges(6, 5)}, {6, ranges(6, 6)},
		{8, ranges(8, 1)}, {8, ranges(8, 2)}, {8, ranges(8, 4)}, {8, ranges(8, 8)},
		{8, []Range{{0, 5}, {5, 6}, {6, 8}}}, {6, []Range{{0, 1}, {1, 6}}},
	} {
		for _, where := range []struct {
			a       Architecture
			servers int
		}{{Servers, 1}, {Servers, 3}, {AllReduce, 0}, {Hybrid, 2}} {
			t.Run(fmt.Sprintf("V%d/%v/%s%d", c.leaves, c.workers, where.a, where.servers), func(t *testing.T) {
				t.Parallel()
				d := mixed(c.leaves, 1)
				d.Workers = c.workers
				checkSteps(t, newJob(t, d, where.a, where.servers), 5)
			})
		}
	}
}
