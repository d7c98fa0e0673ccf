package kernels_test

import (
	"testing"

	"github.com/plx-run/plx/trainer/executor"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// array is an operand of an operation that onCPU runs.
type array[T float] struct {
	shape []int
	data  []T
}

func of[T float](data []T, shape ...int) array[T] { return array[T]{shape, data} }

// results is the result of an operation on the CPU and the gradients of its
// operands.
type results[T float] struct {
	out       []T
	gradients [][]T // gradients of the first operands; their number is onCPU's parameter n
}

var training = operation.Call{Step: 3, VirtualWorker: 1, VirtualWorkers: 2, Seed: 77, Train: true}

// onCPU runs an operation of a Gorgonia graph on the CPU. If dy is not nil, it
// is the gradient of the result, and onCPU also computes the gradients of the
// first n operands. For a scalar result, nil means a dy of 1.
func onCPU[T float](t *testing.T, n int, dy []T, build func(gorgonia.Nodes) (*gorgonia.Node, error), operands ...array[T]) (r results[T]) {
	t.Helper()
	g, dtype := gorgonia.NewGraph(), tensor.Float32
	if number[T]() == 1 {
		dtype = tensor.Float64
	}
	var leaves gorgonia.Nodes
	plan := executor.Plan{}
	leaf := func(x array[T]) *gorgonia.Node {
		value := tensor.New(tensor.WithShape(x.shape...), tensor.WithBacking(x.data))
		node := gorgonia.NewTensor(g, dtype, len(x.shape), gorgonia.WithShape(x.shape...), gorgonia.WithName(string(rune('a'+len(leaves)))))
		leaves = append(leaves, node)
		plan.Fixed, plan.FixedValues = append(plan.Fixed, node), append(plan.FixedValues, value)
		return node
	}
	for _, x := range operands {
		leaf(x)
	}
	y, err := build(leaves)
	if err != nil {
		t.Fatal(err)
	}
	plan.Outputs = gorgonia.Nodes{y}
	if n > 0 {
		plan.Loss, plan.Differentiate = y, leaves[:n:n]
		if dy != nil {
			weights := leaf(of(dy, y.Shape()...))
			plan.Loss = gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.HadamardProd(y, weights))))
		}
	}
	program, err := executor.Compile(g, plan)
	if err != nil {
		t.Fatal(err)
	}
	var into [][]byte
	for i := range n {
		r.gradients = append(r.gradients, make([]T, len(operands[i].data)))
		into = append(into, bytesOf(r.gradients[i]))
	}
	if _, err := program.Run(training, into, nil); err != nil {
		t.Fatal(err)
	}
	b, _ := memory.Raw(program.Output(0))
	r.out = append(r.out, memory.View[T](b)...)
	return r
}
