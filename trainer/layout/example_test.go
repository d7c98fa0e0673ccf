package layout

import (
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
)

func server0(index int) cluster.Task { return cluster.Task{Role: cluster.PS, Index: index} }

func worker(rank int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: rank} }

// ranges divides [0, n) into count ranges of nearly equal length.
func ranges(n, count int) (all []Range) {
	for i := range count {
		all = append(all, Range{n * i / count, n * (i + 1) / count})
	}
	return all
}

// in returns a copy of d with another synchronisation mode.
func in(mode string, d Declaration) Declaration {
	d.Sync = parsed(mode)
	return d
}

func parsed(mode string) policy.Sync {
	s, err := policy.ParseSync(mode)
	if err != nil {
		panic(err)
	}
	return s
}

// example returns a declaration whose variables are not placed on holders yet.
func example(virtualWorkers, workers int) Declaration {
	return Declaration{
		VirtualWorkers: virtualWorkers, Workers: ranges(virtualWorkers, workers),
		Variables: []Variable{
			{Name: "w", Dtype: Float32, Shape: []int{3, 5}},
			{Name: "b", Dtype: Float64, Shape: []int{4}},
			{Name: "big", Dtype: Float32, Shape: []int{5, 1024}},
			{Name: "s", Dtype: Float32},
		},
		Optimizer: optimizer.Settings{Rule: optimizer.Momentum, Momentum: 0.9},
		Batch:     12, StartMillis: 20000, SilenceMillis: 20000,
	}
}

// mixed returns a declaration with two element types, a statistic, two tables,
// and a variable of several blocks.
func mixed(virtualWorkers, workers int) Declaration {
	d := example(virtualWorkers, workers)
	d.Optimizer = optimizer.Settings{Rule: optimizer.Adam, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	d.Variables = append(d.Variables,
		Variable{Name: "mean", Dtype: Float32, Shape: []int{7}, Update: optimizer.Average, Momentum: 0.9},
		Variable{Name: "table", Dtype: Float32, Shape: []int{41, 3}, Sparse: &Sparse{Average: true, First: RowInit{Kind: "uniform", A: -1, B: 1, Seed: 3}}},
		Variable{Name: "added", Dtype: Float32, Shape: []int{9, 2}, Sparse: &Sparse{}},
	)
	d.Clip, d.Metrics, d.BucketBytes = 50, 2, 4096
	return d
}
