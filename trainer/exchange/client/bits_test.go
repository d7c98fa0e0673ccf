package client

import (
	"fmt"
	"testing"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
)

// Mixed has everything at once: two types, statistics, a table, a variable of
// several blocks, Adam, clipping and metrics.
func mixed(leaves, workers int) layout.Declaration {
	d := example(leaves, workers)
	d.Optimizer = optimizer.Settings{Rule: optimizer.Adam, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	d.Variables = append(d.Variables,
		layout.Variable{Name: "mean", Dtype: layout.Float32, Shape: []int{7}, Update: optimizer.Average, Momentum: 0.9},
		layout.Variable{Name: "table", Dtype: layout.Float32, Shape: []int{41, 3}, Sparse: &layout.Sparse{Average: true, First: layout.RowInit{Kind: "uniform", A: -1, B: 1, Seed: 3}}},
		layout.Variable{Name: "added", Dtype: layout.Float32, Shape: []int{9, 2}, Sparse: &layout.Sparse{}},
	)
	d.Clip, d.Metrics, d.BucketBytes = 50, 2, 4096
	return d
}

func TestBitsOfEverything(t *testing.T) {
	for _, c := range []struct {
		leaves  int
		workers []layout.Range
	}{
		{6, ranges(6, 1)}, {6, ranges(6, 2)}, {6, ranges(6, 3)}, {6, ranges(6, 4)}, {6, ranges(6, 5)}, {6, ranges(6, 6)},
		{8, ranges(8, 1)}, {8, ranges(8, 2)}, {8, ranges(8, 4)}, {8, ranges(8, 8)},
		{8, []layout.Range{{Lo: 0, Hi: 5}, {Lo: 5, Hi: 6}, {Lo: 6, Hi: 8}}}, {6, []layout.Range{{Lo: 0, Hi: 1}, {Lo: 1, Hi: 6}}},
	} {
		for _, where := range []struct {
			a       policy.Architecture
			servers int
		}{{policy.Servers, 1}, {policy.Servers, 3}, {policy.AllReduce, 0}, {policy.Hybrid, 2}} {
			t.Run(fmt.Sprintf("V%d/%v/%s%d", c.leaves, c.workers, where.a, where.servers), func(t *testing.T) {
				t.Parallel()
				d := mixed(c.leaves, 1)
				d.Workers = c.workers
				checkSteps(t, newJob(t, d, where.a, where.servers), 5)
			})
		}
	}
}
