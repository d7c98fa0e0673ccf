// Package data feeds training: datasets, shuffled epochs, data shards,
// prefetch in the background, and readers of files.
//
//	train, err := data.ReadMNIST("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
//	epochs, err := data.NewEpochs(data.EpochsConfig{Samples: train.Len(), Batch: 64, Seed: 1})
//	fill, err := data.NewFiller(train, train.Classes, data.Scale{})
//	for step, rows := range epochs.All(0, 1000, lo, hi) { // this worker's rows [lo, hi) of each batch
//		err := fill.Fill(rows, x, y)
//		...
//	}
//
// # Three ways to feed
//
// Epochs gives the same global batch whatever the number of workers, each
// worker takes its rows: what training with the same bits needs. Shard and
// ShardStream give each data shard the elements whose index is its own modulo
// the number of shards. Range, FileShards and ShardLines cut rows, files and
// the bytes of a text into contiguous pieces. All of them give each element to
// one shard, with any remainder.
//
// # Shuffling
//
// The order of an epoch depends on the seed and the epoch alone (package
// trainer/random). Up to 65536 samples it is a table of 4 bytes each, drawn
// evenly from all orders; above it is computed place by place without memory.
// Any step can be asked for at once, in either case.
//
// # Readers
//
// IDX, CIFAR-10's binary version, CSV, NumPy's .npy, texts and vocabularies,
// each packed with gzip or not. Errors name the file and the line or the byte,
// what was expected and what was found. No length that a file claims is
// allocated before the file is known to hold as much.
//
// # What it refuses
//
// It shards nothing twice. It reads no pickles, no CIFAR-100, no records of
// NumPy and nothing over the network, and it does not guess: a field that is
// no finite number, a text that is not UTF-8 or bytes after the end of an
// array are errors. It knows nothing of jobs and graphs.
package data
