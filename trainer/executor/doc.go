// Package executor runs a Gorgonia graph: it computes the values and gradients
// of one model on one batch, again and again, without allocating.
//
//	program, err := executor.Compile(g, executor.Plan{
//		Inputs: inputs, Fixed: variables, FixedValues: values,
//		Loss: loss, Differentiate: variables,
//	})
//	// for every step:
//	copy(program.Input(0).Data().([]float32), batch)
//	loss, err := program.Run(operation.Call{Step: step, Train: true}, gradients,
//		func(i int) { send(gradients[i]) })
//
// Package compile decides what to compute, in which order and where in memory.
// Package cpu computes it, and package gpu on a GPU: see CompileOn. Package memory turns Gorgonia's values into bytes
// and back.
//
// Compile starts from what is wanted (the loss, the gradients, the outputs) and
// leaves out everything else. It merges vertices that compute the same, and
// computes once what depends on constants only. It plans the memory of the
// whole run, and orders the work so that gradients are complete as early as
// possible, the last layer's first. A run writes a gradient into the caller's
// memory. It announces the gradient as soon as it is complete and no later
// instruction reads its variable.
//
// # Operations
//
// Gorgonia's common operations run in plx's own kernels, on float32 and
// float64. The same inputs give the same bits, wherever they lie in memory.
// Products use the library that gorgonia.WhichBLAS names at the time of
// Compile. An operation that implements operation.Kernel is called with planned
// memory. Any other operation is called the way Gorgonia calls it, and the run
// may then allocate.
//
// # What it refuses
//
// Operations with hidden state, by name: Gorgonia's dropout, random tensors,
// batch and group normalisation, max pooling and CTC loss. Package rewrite replaces
// most of them before a graph is compiled. Any operation that
// holds pointers without implementing operation.Kernel or operation.Contextual.
// Another version of Gorgonia than v0.9.18. A graph that was differentiated
// before, and one whose index Gorgonia has broken (it does so when it rewrites
// log(1+x) late).
//
// It refuses to differentiate through Log2, InverseSqrt, OuterProd, GlobalAveragePool2D
// and ByIndices, whose gradients Gorgonia computes wrongly or not at all. It also refuses to differentiate by a
// variable that the loss does not depend on.
//
// It does not look for vertices that Gorgonia merged while the graph was built, as
// package rewrite does.
// Gorgonia compares hashes that leave out part of an operation: a SoftMax and a
// LogSoftMax of one value become one vertex, and so do two slices whose bounds
// are 256 apart.
//
// # Concurrency
//
// A Program is for one goroutine at a time. Programs of separate graphs run
// side by side. They share only Plan.FixedValues, which no one may write to
// while a run still reads them. Compile adds to the graph, and Gorgonia uses
// package variables: callers hold one lock around the construction of graphs
// and Compile.
package executor
