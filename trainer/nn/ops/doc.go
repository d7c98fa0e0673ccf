// Package ops has operations and small layers for Gorgonia graphs: those that
// Gorgonia lacks, computes wrongly, or computes with state that two copies of a
// graph would share.
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
// Sequences lie one after the other, (batch*steps, width), so that feeds are
// divided among virtual workers like any other feed. LSTM, GRU and Attention
// take the number of steps. SampledCrossEntropy is a softmax over a sample of
// many classes; the weights of the classes may be a trainer.Embedding. A Sampler
// draws the sample:
//
//	layer, err := ops.LSTM{X: words, Input: w, State: u, Bias: b}.Over(steps)
//	...
//	loss, estimate, err := ops.SampledCrossEntropy(layer.Out, candidates)
//
// Every operation takes float32 or float64, checks shapes when the graph is
// built, and has a gradient for gorgonia.Grad. Images are (batch, channels,
// height, width), row-major.
//
// # How they run
//
// Every operation is an operation.Kernel: it writes into memory that it is
// given and allocates nothing. It adds in one fixed order. So the same inputs
// give the same bits wherever the same binary and BLAS library run on the same
// kind of CPU. Dropout and BatchNorm are operation.Contextual: the executor
// tells them step, virtual worker, seed and whether the run is training. So are
// Uniform, Gaussian and Binomial. Random numbers come from package random.
//
// Gorgonia's machines can run the operations too. They do not call Prepare, so
// there Dropout and BatchNorm evaluate.
//
// An operation belongs to the graph that it was built in, and holds scratch
// memory. So a graph must not run twice at the same time and must not be
// cloned: build one graph for each replica.
//
// # What it refuses
//
// It has no state that outlives a run: the running mean and variance of a batch
// norm are inputs, and package trainer updates them. It does not differentiate
// twice. It makes no variables and no initial values; package nn does.
package ops
