// Package nn makes a model layer by layer, so that no name, shape or seed is
// typed twice:
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
// A [Builder] knows the batch, the seed, and everything that was added to it.
// A layer takes its input's shape from the input, and adds its variables. A
// variable is named after its layer: hidden.w and hidden.b above. Its first
// values follow from the seed and that name.
//
// # Errors
//
// A builder keeps the first error; later calls do nothing. [Build] returns that
// error, so a build function checks none. An error names the layer and the
// shapes that do not fit:
//
//	layer "out": x is (64, 16, 8, 8), want (rows, features): use Flatten
//
// # Operations
//
// Package nn also has the operations of package ops, which work on nodes of any
// Gorgonia graph. A build function over a bare graph, see [trainer.Build], needs
// nothing else of this package. [Builder.Node] takes an operation into a model:
//
//	h := b.Node(nn.Concat(1, left, right))
//	h = b.Node(gorgonia.Exp(h))
//
// # What it refuses
//
// A builder refuses two layers, inputs or variables of one name, shapes that do
// not fit, a model without a loss and one with two. Package trainer refuses a
// variable that the loss does not depend on. All this happens in Parallelize,
// before a worker waits for another.
package nn
