// Package metrics finds the values that a training reports, such as its loss, without a
// change of the program: in the lines that it prints.
//
//	patterns, err := metrics.ParsePatterns([]string{"loss=LOSS ([0-9.]+)"}) // --metric
//	...
//	sample := metrics.Line([]byte("step 100 | loss 0.31"), patterns)
//	// step 100, loss 0.31
//
// Line knows names with a value beside them, progress bars (tqdm, Keras, Rich), dicts of
// Python and objects of JSON. In plain text only names that have a word of training in
// them count, so that ports, sizes, dates and versions are no metrics. A Watcher applies it to
// a stream at bounded cost, and a History keeps what was found in bounded memory.
//
// # What it refuses
//
// It reads and writes no files, starts nothing and knows no clock.
package metrics
