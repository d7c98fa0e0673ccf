// Package executor runs a Gorgonia graph: the values and gradients of one
// model on one batch, again and again, without allocating.
//
//	program, err := executor.Compile(g, executor.Plan{
//		Inputs: inputs, Fixed: variables, FixedValues: values,
//		Loss: loss, Differentiate: variables,
//	})
//	// for every step:
//	copy(program.Input(0).Data().([]float32), batch)
//	loss, err := program.Run(executor.Call{Step: step, Train: true}, gradients,
//		func(i int) { send(gradients[i]) })
//
// Compile starts from what is wanted (the loss, the gradients, the outputs)
// and leaves out all else. It merges two vertices only where it compared them,
// evaluates once what depends on shapes and constants only, gives every value
// its place in memory planned for the whole run, and orders the work so that
// gradients are complete as early as can be, the last layer's first. A
// gradient is written where the caller wants it, and announced as soon as it
// is complete and nothing that is still to run reads its variable.
//
// # Operations
//
// Gorgonia's common operations run in kernels of this package's own, on
// float32 and float64: the same bits for the same inputs whatever their place
// in memory, products by the library that gorgonia.WhichBLAS names when the
// program is compiled. An operation that implements Kernel is called with
// planned memory. Any other is called the way Gorgonia does it, and then a run
// may allocate.
//
// # What it refuses
//
// An operation with hidden state that it does not know, by name: Gorgonia's
// dropout, random tensors, batch and group normalisation, max pooling, CTC
// loss, and any operation that holds pointers without implementing Kernel or
// Contextual. A layout of Gorgonia's operations other than that of v0.9.18. A
// graph that was differentiated before, and one whose index Gorgonia has
// broken (it does when it rewrites log(1+x) late).
//
// It refuses to differentiate through Log2, InverseSqrt and OuterProd, whose
// gradients Gorgonia gets wrong, and by a variable that the loss does not
// depend on.
//
// What it cannot see are vertices that Gorgonia took for one before: while a
// graph is built, it compares hashes that leave out part of an operation. A
// SoftMax and a LogSoftMax of one value become one, and so do two slices whose
// bounds are 256 apart.
//
// # Concurrency
//
// A Program is used by one goroutine at a time. Programs of graphs that were
// built separately run side by side; they share nothing but Plan.FixedValues,
// which no one may write to while a run still reads them. Compile builds upon
// the graph, and Gorgonia counts and pools in variables of its package: callers
// hold one lock around the construction of graphs and Compile.
package executor
