package client

import (
	"fmt"
	"testing"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
)

// mixed returns a declaration that combines many features: two element types,
// statistics, tables, a variable of several blocks, Adam, clipping and
// metrics.
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

// Tests each division of the virtual workers among workers with one placement,
// and some divisions with all placements. The long test combines all of them.
func TestCombinationsMatchReference(t *testing.T) {
	for i, workers := range cuts {
		testBits(t, workers, placesToTrain[i%len(placesToTrain)], 3)
	}
}

// divisions of 6 and of 8 virtual workers among workers
var cuts = [][]layout.Range{
	ranges(6, 1), ranges(6, 2), ranges(6, 3), ranges(6, 4), ranges(6, 5), ranges(6, 6),
	ranges(8, 1), ranges(8, 2), ranges(8, 4), ranges(8, 8),
	{{Lo: 0, Hi: 5}, {Lo: 5, Hi: 6}, {Lo: 6, Hi: 8}}, {{Lo: 0, Hi: 1}, {Lo: 1, Hi: 6}},
}

var placesToTrain = []place{{policy.Servers, 1}, {policy.Servers, 3}, {policy.AllReduce, 0}, {policy.Hybrid, 2}}

func testBits(t *testing.T, workers []layout.Range, at place, steps uint64) {
	leaves := workers[len(workers)-1].Hi
	t.Run(fmt.Sprintf("V%d/%v/%s%d", leaves, workers, at.a, at.servers), func(t *testing.T) {
		t.Parallel()
		d := mixed(leaves, 1)
		d.Workers = workers
		checkSteps(t, newJob(t, d, at.a, at.servers), steps)
	})
}
