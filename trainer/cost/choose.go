package cost

import "fmt"

// Choose returns PS or AllReduce, and why, for a variable that may travel
// either way: rows go to servers while they are fewer bytes than a dense
// all-reduce, a (1 + 1.5 i/r) < 1 in the words of the package's comment, with
// a the part of the rows that one host touches. A dense variable goes by
// all-reduce. Only where a variable travels is chosen, never what its gradient
// means: a sparse one is sparse either way.
func Choose(v Variable, c Cluster) (route Architecture, why string) {
	share, known := sparseShare(v, c)
	switch {
	case !v.Sparse():
		return AllReduce, "dense"
	case len(c.Servers) == 0:
		return AllReduce, "no servers"
	case !known:
		return PS, "rows touched are not known"
	case share < 1:
		return PS, "rows+index " + percent(share) + " of dense"
	}
	return AllReduce, "rows+index " + percent(share) + " of dense"
}

// sparseShare is how much of a dense all-reduce a host's rows and their
// indices are.
func sparseShare(v Variable, c Cluster) (share float64, ok bool) {
	if _, _, ok := v.touched(); !ok || len(c.Workers) == 0 {
		return 0, false
	}
	l := newLinks(c)
	sum, hosts := 0.0, 0.0
	for _, workers := range l.workers {
		if workers > 0 {
			density := v.union(workers, len(c.Workers)) / float64(v.Rows)
			sum += density * (1 + 1.5*indexBytes(density)/float64(v.rowBytes()))
			hosts++
		}
	}
	return sum / hosts, true
}

// rowBytes is the size of a row, of a dense variable too, at least 1.
func (v Variable) rowBytes() int {
	if v.Sparse() {
		return v.RowBytes
	}
	return max(1, v.Bytes/max(1, v.Rows))
}

func percent(part float64) string {
	if part >= 0.1 {
		return fmt.Sprintf("%.0f %%", 100*part)
	}
	return fmt.Sprintf("%.2g %%", 100*part)
}
