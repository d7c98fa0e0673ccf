// Package sparse handles the rows of a table of which a step touches few: an
// embedding.
//
// A worker asks which rows a batch needs and adds up their gradients:
//
//	var lookup sparse.Lookup[float32]
//	rows := lookup.Set(tokens)                    // ascending, each once: what to pull
//	lookup.Gather(pulled, width, input)           // input[i] is the row of tokens[i]
//	gradient := lookup.Combine(backward, width)   // Rows: what to push
//
// Contributions meet along the fixed tree, a below b:
//
//	sum = sparse.Merge(sum, a, b)
//
// and the owner of the rows [lo, hi) applies them:
//
//	table, err := sparse.NewTable[float32]("words", initial, settings, lo, hi, width)
//	err = table.Apply(optimizer.Step{Number: n, Rate: rate, Scale: 1}, sum)
//	err = table.Read(index, values)
//
// Wishes tells an owner which rows it may send before a step is over, because
// nobody wanted them for it.
//
// A row that nobody touched is absent, not zero: its value, its momentum and
// its decay stand still.
//
// # Same bits
//
// Duplicates within a batch are added in the order of their positions, rows
// of two contributions as lower + upper, and a row of one contribution alone
// is copied. The first values of a row are those that a dense variable of the
// same name and shape would have there. So nothing depends on how a table is
// partitioned.
//
// # What it refuses
//
// Rows out of order, out of range or of another width, from a caller with an
// error, from the wire before anything is allocated for them. It starts no
// goroutine and takes no lock.
package sparse
