// Package ops has operations and small layers for Gorgonia graphs: operations
// that Gorgonia lacks, operations that Gorgonia computes wrongly, and
// operations whose state two copies of a graph would share in Gorgonia.
//
// A small convolutional network over images (batch, 3, 32, 32), in a build
// function of package trainer:
//
//	h, err := ops.Conv2D(x, filters, 1, 1) // filters (16, 3, 3, 3)
//	...
//	norm, err := ops.BatchNorm(h, scale, bias, runningMean, runningVariance, 0.9, 1e-5, "norm1")
//	...
//	h, err = ops.Relu(norm.Out)
//	...
//	h, err = ops.MaxPool2D(h, 2, 2, 0) // (batch, 16, 16, 16)
//	...
//	h, err = ops.Flatten(h)
//	...
//	h, err = ops.Dropout(h, 0.5, "dropout1")
//	...
//	logits, err := ops.Linear(h, w, b) // w (4096, 10), b (10)
//	...
//	loss, err := ops.CrossEntropy(logits, labels) // labels (batch, 10), one-hot
//
// Sequences are stored one after the other, with shape (batch*steps, width),
// so that the trainer can divide them among virtual workers like any other
// feed. LSTM, GRU and Attention take the number of steps as a parameter.
// SampledCrossEntropy is a softmax over a sample of many classes; the weights
// of the classes may be a trainer.Embedding. A Sampler draws the sample:
//
//	layer, err := ops.LSTM{X: words, Input: w, State: u, Bias: b}.Over(steps)
//	...
//	loss, estimate, err := ops.SampledCrossEntropy(layer.Out, candidates)
//
// Every operation accepts float32 or float64, checks shapes when the graph is
// built, and has a gradient for gorgonia.Grad. Images have shape (batch,
// channels, height, width), in row-major order.
//
// # Execution
//
// Every operation implements operation.Kernel: it writes its result into
// memory of the caller and allocates nothing. It adds numbers in a fixed
// order. The same inputs therefore give bit-identical results with the same
// binary and BLAS library on the same type of CPU. Dropout, BatchNorm,
// Uniform, Gaussian and Binomial implement operation.Contextual. Through it,
// the executor passes them the step, the virtual worker, the seed, and whether
// the run is training. Random numbers come from package random.
//
// Gorgonia's own machines can run the operations too. They do not call Prepare,
// so Dropout and BatchNorm always run as in an evaluation there.
//
// An operation belongs to the graph that it was built in, and holds scratch
// memory. Therefore a graph must not run twice at the same time and must not
// be cloned: build one graph for each replica.
//
// # Limits
//
// Operations keep no state from one run to the next: the running mean and
// variance of a batch norm are inputs, which package trainer updates. Second
// derivatives are not supported. The package does not create variables or
// initial values; package nn does.
package ops
