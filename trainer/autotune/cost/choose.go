// Package cost reports how many bytes a training job transfers in a step. For
// embedding tables it chooses between parameter servers and all-reduce among
// the workers.
//
//	words := cost.Variable{Name: "words", Bytes: 51_200_000, Rows: 100_000, RowBytes: 512, Touched: 3200}
//	route, why := cost.Choose(words)
//	r := cost.Report{Cluster: c, Variables: variables, Exchanged: exchanged, Steps: 50}
//	... r.Lines() and r.Notes() for the log
//
// # The choice
//
// Assume that a job has n hosts with one worker each. A table has w bytes, a
// row r bytes, and the index of a row i bytes. A worker uses the fraction a of
// the rows in a step.
//
//   - A dense all-reduce sends 2(n-1)/n w over the link of each host (Patarasuk
//     and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//     workstations", 2009).
//   - Rows on one server per host send 2(n-1)/n a w (Parallax, Kim et al.,
//     EuroSys'19, table of data transfer), and three times the index of each row: the
//     worker requests the row, receives it, and sends its gradient.
//
// So sending rows needs fewer bytes if a (1 + 1.5 i/r) < 1. An index is
// encoded as the difference from the previous index, with 7 bits in each byte.
//
// # The report
//
// A network link transfers both directions at the same time. So the load of a
// host is the larger of the bytes that leave it and the bytes that enter it.
// Bytes that stay inside a host are not counted. All reported numbers are
// measured; the report contains no predictions.
package cost

import (
	"fmt"
	"math"
)

// Route is how the values and gradients of a variable are exchanged.
type Route string

// PS means exchange with parameter servers; AllReduce means exchange directly
// among the workers.
const (
	PS        Route = "ps"
	AllReduce Route = "allreduce"
)

// Variable has the sizes of one variable of the model, and how much of it
// workers use.
type Variable struct {
	Name     string
	Route    Route // how the variable's values and gradients are exchanged now
	Bytes    int   // size of the whole variable in bytes
	Rows     int   // length of the variable's first dimension; 0 means unknown
	RowBytes int   // bytes of one row of an embedding table; 0 means that the variable is dense
	// Touched is the mean number of rows that one worker uses in a step. For a
	// dense variable it counts the rows of the gradient that are not zero. 0
	// means unknown.
	Touched float64
}

// Sparse reports whether single rows are exchanged instead of the whole
// variable.
func (v Variable) Sparse() bool { return v.RowBytes > 0 }

// density returns the fraction of the rows that one worker uses in a step. ok
// is false if the fraction is unknown.
func (v Variable) density() (part float64, ok bool) {
	if !(v.Touched > 0) || v.Rows < 1 {
		return 0, false
	}
	return min(v.Touched/float64(v.Rows), 1), true
}

// share returns the bytes of the used rows and their indices, divided by the
// bytes of a dense all-reduce. It is a (1 + 1.5 i/r) in the package comment's
// notation.
func (v Variable) share() (part float64, ok bool) {
	density, ok := v.density()
	return density * (1 + 1.5*indexBytes(density)/float64(max(1, v.RowBytes))), ok
}

// Choose returns the cheaper way to exchange a sparse variable in a job with
// parameter servers: over the servers (PS) or directly among the workers
// (AllReduce). why is the reason. Servers are cheaper if the rows that a step
// uses have fewer bytes than a dense all-reduce. The choice does not change
// the results of training.
func Choose(v Variable) (r Route, why string) {
	share, known := v.share()
	switch {
	case !known:
		return PS, "rows touched are not known"
	case share < 1:
		return PS, "rows+index " + percent(share) + " of dense"
	}
	return AllReduce, "rows+index " + percent(share) + " of dense"
}

// indexBytes returns the mean size of an encoded row index in bytes, if every
// row is used with probability density. Indices are encoded as differences. A
// difference of 128 or more takes a second byte, and one of 128*128 or more
// takes a third.
func indexBytes(density float64) float64 {
	bytes := 1.0
	for least := 128.0; least < 1<<62 && density < 1; least *= 128 {
		bytes += math.Exp(least * math.Log1p(-density))
	}
	return bytes
}

func percent(part float64) string {
	if part >= 0.1 {
		return fmt.Sprintf("%.0f %%", 100*part)
	}
	return fmt.Sprintf("%.2g %%", 100*part)
}
