package trainer

// Partitioning says in how many partitions a table may be cut.
type Partitioning struct{ least int }

// Partitioner lets the trainer cut a table in any number of partitions from
// least on: as many as --partitions says, or else as many as make steps
// fastest, which it finds out while it trains (--search-partitions). All
// tables with a partitioner are cut in the same number. Least is for tables
// that are too large for fewer hosts; below 1 it is 1.
//
//	words := &trainer.Embedding{Name: "words", ..., Partitioner: trainer.Partitioner(1)}
//
// How a table is cut changes where its rows lie and nothing else: the weights
// are the same bits.
func Partitioner(least int) Partitioning { return Partitioning{max(least, 1)} }

// free reports whether the number of partitions is the trainer's choice.
func (p Partitioning) free() bool { return p.least > 0 }
