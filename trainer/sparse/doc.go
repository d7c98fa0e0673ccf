// Package sparse implements embedding tables: variables of which each training
// step reads and updates only a few rows.
//
// A worker finds the rows that a batch needs, and adds up their gradients:
//
//	var lookup sparse.Lookup[float32]
//	rows := lookup.Set(tokens)                    // ascending, without duplicates: the rows to request
//	lookup.Gather(pulled, width, input)           // input[i] is the row of tokens[i]
//	gradient := lookup.Combine(backward, width)   // the rows to send
//
// Gradients of several workers are added along the fixed reduction tree, with
// a from the lower subtree:
//
//	sum = sparse.Merge(sum, a, b)
//
// The shard holder (the task that stores the rows [lo, hi)) applies the sum:
//
//	table, err := sparse.NewTable[float32]("words", initial, settings, lo, hi, width)
//	err = table.Apply(optimizer.Step{Number: n, Rate: rate, Scale: 1}, sum)
//	err = table.Read(index, values)
//
// [Requests] records the rows that workers request for a step. A shard holder may
// send all other rows before the step is over.
//
// A row that no worker requested has no gradient, which differs from a
// gradient of zero: its value and momentum do not change, and weight decay
// does not shrink it.
//
// # Same bits
//
// Gradients of one row in a batch are added in the order of their positions. Of
// two gradient sums, the one from the lower subtree of the reduction tree is
// the left operand. A row that is only in one of the sums is copied. The
// initial values of a row are those of a dense variable with the same name and
// shape. So results do not depend on how a table is cut into shards.
//
// # Errors
//
// Functions return an error for rows that are out of order, out of range or of
// a wrong width. For rows from the network they do so before they allocate
// memory. The package starts no goroutine and takes no lock.
package sparse
