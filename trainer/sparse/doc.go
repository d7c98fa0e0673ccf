// Package sparse handles the rows of a table of which a step touches few: an
// embedding.
//
// A worker finds the rows that a batch needs and adds up their gradients:
//
//	var lookup sparse.Lookup[float32]
//	rows := lookup.Set(tokens)                    // ascending, each once: the rows to pull
//	lookup.Gather(pulled, width, input)           // input[i] is the row of tokens[i]
//	gradient := lookup.Combine(backward, width)   // the rows to push
//
// Contributions are added along the fixed reduction tree, a below b:
//
//	sum = sparse.Merge(sum, a, b)
//
// The holder of the rows [lo, hi) applies the sum:
//
//	table, err := sparse.NewTable[float32]("words", initial, settings, lo, hi, width)
//	err = table.Apply(optimizer.Step{Number: n, Rate: rate, Scale: 1}, sum)
//	err = table.Read(index, values)
//
// Wishes tells a shard holder which rows it may send before a step is over:
// those that no worker requested for the step.
//
// A row that no worker touched is absent, and not zero: its value, its momentum
// and its decay do not change.
//
// # Same bits
//
// Duplicates within a batch are added in the order of their positions. Rows of
// two contributions are added as lower + upper. A row of only one contribution
// is copied. The first values of a row are those of a dense variable with the
// same name and shape. So nothing depends on how a table is partitioned.
//
// # What it refuses
//
// It refuses rows that are out of order, out of range or of another width. From
// a caller that is an error; from the wire it is found before anything is
// allocated. The package starts no goroutine and takes no lock.
package sparse
