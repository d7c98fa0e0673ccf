// Package data reads the samples that a model is trained on. It has datasets
// with random access, shuffled epochs, a loader that reads batches in the
// background, and readers for file formats.
//
//	images, err := data.OpenFolder(nil, "pictures")         // pictures/cat/1.png, ...
//	shard, err := trainer.Epochs(ctx, job, images, batch)   // this worker's rows of each batch
//	mine, err := shard.Batch(step)
//
// # Order
//
// A [Dataset] returns any sample by its index, so the batch of a step depends
// only on the step's number. With a global batch of B rows, step n takes the B
// samples from n*B on. A program that resumes at a step therefore reads the
// same samples as an uninterrupted run. Workers need the same files, but
// exchange no messages about the order. [Epochs] shuffles: the order of an
// epoch depends on the seed and the epoch's number (package trainer/random).
// For up to 65536 samples, the order is a table in memory, and every order is
// equally likely. For more samples, the order is computed for each sample and
// needs no memory. [Interleave] takes samples from several files in turn.
// [Augment] changes samples at random, differently in each epoch.
//
// # Readers
//
//	ReadMNIST, ReadCIFAR10    images in memory
//	OpenFolder                PNG and JPEG files of one size, decoded on access
//	OpenPictures              PNG and JPEG files of any size; Crop makes them equal
//	OpenRecords, ParseExample TFRecord files, and the tf.train.Examples in them
//	ReadCSV, ReadNPY          rows of numbers in memory
//	OpenParallel              a text and its translation, line by line
//	ReadCorpus, ReadWords     a text in memory, and its vocabulary from a file
//	ReadText                  a text in memory, with a vocabulary made from its words
//
// The functions named Read... load whole files into memory and also accept
// files compressed with gzip. The others need random access, which gzip does
// not offer. OpenRecords decompresses such a file to a temporary file first;
// OpenParallel rejects it.
//
// # Corrupt files
//
// An error names the file, the line or the byte offset, the expected value and
// the value found. A reader does not trust lengths in a file: it allocates
// memory only after it has checked that the file is long enough. A corrupt
// sample is an error, unless the program asks to skip such samples: see
// [Skipped].
//
// # Unsupported input
//
// The package reads no pickles, no CIFAR-100, no NumPy structured arrays, and
// nothing over the network. These are errors: a field that is not a finite
// number, a text that is not UTF-8, images of different sizes in one
// OpenFolder, and bytes after the end of an array. The package does not depend
// on jobs or graphs.
package data
