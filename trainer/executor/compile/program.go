package compile

import "github.com/plx-run/plx/trainer/operation"

// Program says how to compute what is wanted of a graph. A machine such as
// package cpu's needs nothing else from the graph.
type Program struct {
	Inputs       []*Value      // by Wanted.Inputs
	Fixed        []*Value      // by Wanted.Fixed
	Constants    []*Value      // computed once, before the first run, in this order; leaves are not among them
	Instructions []Instruction // what a run does, in this order
	Gradients    []Gradient    // by Wanted.Differentiate
	Outputs      []*Value      // by Wanted.Outputs; the loss comes last if one is wanted
	HasLoss      bool          // the last output is the loss
	ArenaBytes   int           // size of the memory that computed values share

	Contextual []operation.Contextual // operations to prepare before each run
}

// Instruction computes one value.
type Instruction struct {
	Value *Value
	Ready []int // gradients that are complete after it, and whose variables no later instruction reads
}

// Gradient is the gradient of one leaf.
type Gradient struct {
	Value *Value // a root with a place InGradients
	Name  string // of the leaf
}
