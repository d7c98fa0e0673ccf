// Package data reads what a model is trained on: datasets with random access,
// shuffled epochs, batches that are read in the background, and readers of files.
//
//	images, err := data.OpenFolder(nil, "pictures")         // pictures/cat/1.png, ...
//	shard, err := trainer.Epochs(ctx, job, images, batch)   // this worker's rows of each batch
//	mine, err := shard.Batch(step)
//
// # Order
//
// A [Dataset] returns sample i whenever it is asked, so a step's batch follows from
// the step's number alone: step n of a global batch of B rows takes the samples from
// n*B on. A program that resumes at a step reads what it would have read, and
// workers need not agree on anything but the files. [Epochs] shuffles: the order of
// an epoch depends on the seed and the epoch's number (package trainer/random). The
// order of up to 65536 samples is a table, drawn evenly from all orders; that of
// more is computed sample by sample, without memory. [Interleave] lets the samples
// of several files take turns. [Augment] changes the samples of each epoch at random.
//
// # Readers
//
//	ReadMNIST, ReadCIFAR10    images in memory
//	OpenFolder                PNG and JPEG files, decoded when they are asked for
//	OpenPictures              the same, of any sizes, which Crop brings to one
//	OpenRecords, ParseExample TFRecord files, and the tf.train.Examples in them
//	ReadCSV, ReadNPY          rows of numbers in memory
//	OpenParallel              two texts, line by line
//	ReadCorpus, ReadWords     a text in memory, and its vocabulary
//	ReadText                  a text in memory, whose words it counts
//
// Readers of what is in memory take files that are packed with gzip, too. The others
// read at any place of a file, which packing prevents; OpenRecords unpacks first.
//
// # Corrupt files
//
// An error names the file, the line or the byte, what was expected and what was
// found. A reader believes no length: it takes memory only after it knows that the
// file is as long. A corrupt sample is an error, unless the program asks to skip
// such samples: see [Skipped].
//
// # What it refuses
//
// It reads no pickles, no CIFAR-100, no records of NumPy, and nothing over the
// network. It does not guess: a field that is not a finite number, a text that is
// not UTF-8, images of several sizes, and bytes after the end of an array are
// errors. It knows nothing of jobs and graphs.
package data
