// Package cost says what a training sends per step and why a variable
// travels where it does: bytes by formula, bytes measured, side by side.
//
//	c := cost.Cluster{Workers: []string{"a", "b"}, Servers: []string{"a", "b"}}
//	words := cost.Variable{Name: "words", Bytes: 51_200_000, Rows: 100_000, RowBytes: 512, Touched: 3200}
//	b := cost.Predict(words, c, cost.PS)          // b.Busiest bytes at the busiest host's link
//	route, why := cost.Choose(words, c)           // PS or AllReduce
//	r := cost.Report{Cluster: c, Variables: variables, Routes: routes, Why: whys}
//	... r.Lines() and r.Notes() for the log; later again with r.Exchanged and r.Steps
//
// # The formulas
//
// A link carries both directions at once, so a host's bytes are the larger of
// what leaves and what enters it; what stays inside a host is not counted.
// With n hosts of one worker each, w bytes of a variable, a the part of its
// rows that a worker touches, r bytes of a row and i of a row's index:
//
//   - dense, on k servers: a host with a worker sends and gets w, less what
//     its own servers hold; a server's share is w/k for each other host. One
//     server per host: 2(n-1)/n w. k hosts of servers alone: max(w, n w/k).
//   - dense, all-reduce: 2(n-1)/n w (Patarasuk and Yuan, "Bandwidth optimal
//     all-reduce algorithms for clusters of workstations", 2009).
//   - rows, on one server per host: 2(n-1)/n a w of rows (Parallax, Kim et al.,
//     EuroSys'19, table of data transfer), and i three times per row: a worker
//     asks for a row, gets it with its index, and sends its gradient so. That
//     is fewer than the dense all-reduce while a (1 + 1.5 i/r) < 1, where 1.5 i
//     is what indices add to one way of a row.
//
// Several workers on a host send to servers as one: their rows are joined.
// How many rows they touch together is guessed from what one and what all
// workers touch. Owners that are workers are served directly by every worker.
// Indices are coded as differences, in 7 bits per byte.
//
// # What it leaves out
//
// Headers of frames, the loss, and that gradients of a range of virtual
// workers may take several sums where it is no whole subtree. It assumes that
// servers have equal shares, which for small variables holds for their sum
// only. Synchronous training alone is described. Nothing here sends or waits.
package cost
