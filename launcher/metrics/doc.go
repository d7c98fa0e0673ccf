// Package metrics finds the values that a training program reports, such as
// its loss, in the lines that it prints. The program need not be changed.
//
//	patterns, err := metrics.ParsePatterns([]string{"loss=LOSS ([0-9.]+)"}) // --metric
//	...
//	sample := metrics.Line([]byte("step 100 | loss 0.31"), patterns)
//	// step 100, loss 0.31
//
// Line recognizes a name beside a value, progress bars (tqdm, Keras, Rich),
// Python dicts and JSON objects. In plain text, a name must contain a word of
// machine learning, such as "loss" or "acc". So ports, sizes, dates and
// versions do not count as metrics. A Watcher applies Line to a stream with a
// bounded use of processor time. A History stores the values in bounded
// memory.
//
// # What it does not do
//
// The package reads and writes no files, starts no processes or goroutines,
// and does not read the clock.
package metrics
