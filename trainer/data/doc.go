// Package data feeds training: datasets, shuffled epochs, data shards,
// prefetching in the background, and readers of files.
//
//	train, err := data.ReadMNIST("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
//	epochs, err := data.NewEpochs(data.EpochsConfig{Samples: train.Len(), Batch: 64, Seed: 1})
//	fill, err := data.NewFiller(train, train.Classes, data.Scale{})
//	for step, rows := range epochs.All(0, 1000, lo, hi) { // this worker's rows [lo, hi) of each batch
//		err := fill.Fill(rows, x, y)
//		...
//	}
//
// # Two ways to divide the data
//
// Epochs gives the same global batch for any number of workers, and each worker
// takes its rows of it. Training with the same bits on any number of workers
// needs that. Shard gives each data shard the elements whose index is its own
// number modulo the number of shards; trainer.Shard does so for every virtual
// worker.
//
// # Shuffling
//
// The order of an epoch depends only on the seed and the epoch's number
// (package trainer/random). The order of up to 65536 samples is a table, drawn
// evenly from all orders. The order of more samples is computed place by place,
// without memory. Any step can be asked for at any time.
//
// # Readers
//
// The readers take IDX, CIFAR-10's binary version, CSV, NumPy's .npy, texts and
// vocabularies, each packed with gzip or not. Errors name the file, the line or
// the byte, what was expected and what was found. A reader allocates the length
// that a file claims only after it knows that the file is as long.
//
// # What it refuses
//
// It shards nothing twice. It reads no pickles, no CIFAR-100, no records of
// NumPy, and nothing over the network. It does not guess: a field that is not a
// finite number, a text that is not UTF-8, and bytes after the end of an array
// are errors. It knows nothing of jobs and graphs.
package data
