// Package cost reports what a training sends in a step, and chooses whether
// the rows of a table go to servers or to workers.
//
//	words := cost.Variable{Name: "words", Bytes: 51_200_000, Rows: 100_000, RowBytes: 512, Touched: 3200}
//	route, why := cost.Choose(words)
//	r := cost.Report{Cluster: c, Variables: variables, Exchanged: exchanged, Steps: 50}
//	... r.Lines() and r.Notes() for the log
//
// # The choice
//
// With n hosts of one worker each, w bytes of a table, a the part of its rows
// that a worker touches, r bytes of a row and i of a row's index:
//
//   - A dense all-reduce sends 2(n-1)/n w over the link of each host (Patarasuk
//     and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//     workstations", 2009).
//   - Rows on one server per host send 2(n-1)/n a w (Parallax, Kim et al.,
//     EuroSys'19, table of data transfer), and i three times per row: a worker
//     asks for a row, gets it with its index, and sends its gradient likewise.
//
// So rows are fewer bytes while a (1 + 1.5 i/r) < 1. The code of an index is its
// difference from the one before it, in 7 bits per byte.
//
// # The report
//
// A link carries both directions at once. The bytes of a host are therefore the
// larger of what leaves it and what enters it. Bytes that stay inside a host are
// not counted. All numbers are measured; package cost predicts none.
package cost
