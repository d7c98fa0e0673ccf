// Package nn builds a model layer by layer, so that no name, shape or seed has
// to be written twice:
//
//	func build(b *nn.Builder) {
//		x, y := b.Input("x", 784), b.Labels("y", 10)
//		b.CrossEntropy(b.Dense("out", b.Tanh(b.Dense("hidden", x, 100)), 10), y)
//	}
//
//	session, err := job.Parallelize(ctx, nn.Build(job.Seed(), build), trainer.SGD(0.1), trainer.Config{GlobalBatch: 64})
//	...
//	for result, err := range session.Train(ctx, steps, feed) // feed makes trainer.Feed{"x": nn.Batch(pixels, 784), ...}
//
// A [Builder] knows the batch size, the seed, and everything that was added to
// it. A layer derives the shapes of its variables from its input and adds the
// variables to the model. A variable is named after its layer: hidden.w and
// hidden.b above. Its initial values depend only on the seed and that name.
//
// # Errors
//
// A builder keeps the first error and ignores all later calls. [Build] returns
// that error, so a build function need not check any. An error names the layer
// and the shapes that do not match:
//
//	layer "out": x is (64, 16, 8, 8), want (rows, features): use Flatten
//
// # Operations
//
// Package nn also exports the operations of package ops, which work on the
// nodes of any Gorgonia graph. A build function that uses a Gorgonia graph
// directly, see [trainer.Build], needs only these operations. [Builder.Node]
// adds an operation to a model:
//
//	h := b.Node(nn.Concat(1, left, right))
//	h = b.Node(gorgonia.Exp(h))
//
// # Checks
//
// A builder reports an error for duplicate names of layers, inputs or
// variables, for shapes that do not match, and for a model that has no loss or
// two. Package trainer reports an error for a variable that the loss does not
// depend on. Parallelize returns all these errors before it waits for other
// workers.
package nn
