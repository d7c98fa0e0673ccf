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
//     asks for a row, gets it with its index, and sends its gradient with the index.
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

import (
	"fmt"
	"math"
)

// Route is where a variable travels.
type Route string

// PS is to servers, AllReduce between workers.
const (
	PS        Route = "ps"
	AllReduce Route = "allreduce"
)

// Variable is what package cost knows of one variable.
type Variable struct {
	Name     string
	Route    Route // how the variable travels now
	Bytes    int   // bytes of the whole variable
	Rows     int   // length of its first dimension; 0 means that it is not known
	RowBytes int   // bytes of a row of a sparse variable; 0 means that the variable is dense
	// Touched is the mean number of rows that one worker touches in a step. Of a
	// dense variable these are the rows of its gradient that are not zero. 0 means
	// that the number is not known.
	Touched float64
}

// Sparse reports whether rows travel instead of the whole variable.
func (v Variable) Sparse() bool { return v.RowBytes > 0 }

// density is the part of the rows that one worker touches in a step. ok is
// false if it is not known.
func (v Variable) density() (part float64, ok bool) {
	if !(v.Touched > 0) || v.Rows < 1 {
		return 0, false
	}
	return min(v.Touched/float64(v.Rows), 1), true
}

// share is how many bytes the touched rows and their indices are, as a part of
// what a dense all-reduce sends: a (1 + 1.5 i/r) of the package's comment.
func (v Variable) share() (part float64, ok bool) {
	density, ok := v.density()
	return density * (1 + 1.5*indexBytes(density)/float64(max(1, v.RowBytes))), ok
}

// Choose returns the route of a sparse variable in a job with servers, and why.
// Rows go to servers while they are fewer bytes than a dense all-reduce. The route
// changes nothing of what a gradient means: the variable is sparse on either.
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

// indexBytes is the mean size of a row's index if each row is touched with the
// probability density. A difference of 128 or more takes a second byte, one of
// 128*128 a third.
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
