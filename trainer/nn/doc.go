// Package nn has the operations and small layers of plx's own for Gorgonia
// graphs: those that Gorgonia has none for, computes wrongly, or computes with
// state that two copies of a graph would share.
//
// A small convolutional network over images (batch, 3, 32, 32), in a build
// function of package trainer:
//
//	h, err := nn.Conv2D(x, filters, 1, 1) // filters (16, 3, 3, 3)
//	...
//	norm, err := nn.BatchNorm(h, scale, bias, runningMean, runningVariance, 0.9, 1e-5, "norm1")
//	...
//	h, err = nn.Relu(norm.Out)
//	...
//	h, err = nn.MaxPool2D(h, 2, 2, 0) // (batch, 16, 16, 16)
//	...
//	h, err = nn.Flatten(h)
//	...
//	h, err = nn.Dropout(h, 0.5, "dropout1")
//	...
//	logits, err := nn.Linear(h, w, b) // w (4096, 10), b (10)
//	...
//	loss, err := nn.CrossEntropy(logits, labels) // labels (batch, 10), one-hot
//
// Sequences lie one after the other, (batch*steps, width), so that a feed is
// cut in data shards as any other; LSTM, GRU and Attention take the number of
// steps. SampledCrossEntropy is a softmax over a sample of many classes whose
// weights may be a trainer.Embedding; a Sampler draws the sample:
//
//	layer, err := nn.LSTM{X: words, Input: w, State: u, Bias: b}.Over(steps)
//	...
//	loss, estimate, err := nn.SampledCrossEntropy(layer.Out, candidates)
//
// Everything takes float32 or float64, checks shapes when the graph is built,
// and has a gradient for gorgonia.Grad. Images are (batch, channels, height,
// width), row-major.
//
// # How they run
//
// Every operation is an executor.Kernel: it writes into memory that it is
// given and allocates nothing. Sums are taken in one fixed order, so the same
// inputs give the same bits wherever the same binary and BLAS library run on
// the same kind of CPU. Dropout and BatchNorm are executor.Contextual: they
// are told step, virtual worker, seed and whether this is training. Random
// numbers come from package random.
//
// Gorgonia's machines run the operations too, without that context: there they
// evaluate.
//
// An operation belongs to the graph that it was built in. It holds scratch
// memory, so a graph must not run twice at the same time, and must not be
// cloned: build one for each lane.
//
// # What it refuses
//
// It has no state that outlives a run: the running mean and variance of a
// batch norm are inputs that somebody else updates. It does not differentiate
// twice. It makes no variables and no initial values; package trainer does.
package nn
