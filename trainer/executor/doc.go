// Package executor computes the values and gradients of a Gorgonia graph: one
// model on one batch, step after step, without allocating memory.
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
// Package cpu computes the values on the CPU, and package gpu on a GPU: see
// CompileOn. Package memory converts Gorgonia's values to bytes and back.
//
// Compile starts from the requested results (the loss, the gradients, the
// outputs) and leaves out all vertices that these results do not need. It
// merges vertices that compute the same value, and computes values that depend
// only on constants once. It plans the memory of the whole run. It orders the
// work so that gradients are complete as early as possible, the last layer's
// first. A run writes each gradient into the caller's memory. The run calls
// the caller's function as soon as a gradient is complete and no later
// instruction reads the gradient's variable.
//
// # Operations
//
// Gorgonia's common operations run in plx's own kernels, on float32 and
// float64. The same inputs give the same bits, wherever they lie in memory.
// Matrix products use the library that gorgonia.WhichBLAS returns when Compile
// is called. An operation that implements operation.Kernel writes its result
// into planned memory. Any other operation is called the way Gorgonia calls
// it, and the run may then allocate memory.
//
// # What Compile refuses
//
// Compile refuses operations with hidden state: Gorgonia's dropout, random
// tensors, batch and group normalisation, max pooling and CTC loss. Package
// rewrite replaces most of these operations before a graph is compiled.
// Compile also refuses any operation that holds pointers without implementing
// operation.Kernel or operation.Contextual, and any version of Gorgonia other
// than v0.9.18. It refuses a graph that was differentiated before. It refuses
// a graph whose index of vertices is wrong; Gorgonia causes this when it
// rewrites log(1+x) in a graph to which it has already added other vertices.
//
// Compile refuses to differentiate through Log2, InverseSqrt, OuterProd,
// GlobalAveragePool2D and ByIndices, whose gradients Gorgonia computes wrongly
// or not at all. It also refuses to differentiate by a variable that the loss
// does not depend on.
//
// Compile does not look for vertices that Gorgonia merged by mistake while the
// graph was built; package rewrite does. Gorgonia compares hashes that leave
// out part of an operation: a SoftMax and a LogSoftMax of one value become one
// vertex, and so do two slices whose bounds are 256 apart.
//
// # Concurrency
//
// A Program may be used by one goroutine at a time. Programs of separate
// graphs may run concurrently. They share only Plan.FixedValues, to which no
// goroutine may write while a run still reads from it. Compile adds vertices
// to the graph, and Gorgonia uses package variables. Callers must therefore
// hold one lock around the construction of graphs and Compile.
package executor
