package layout

import (
	"github.com/plx-run/plx/trainer/cluster"
)

// HostOf returns the ranks of a worker's host.
func (d *Declaration) HostOf(rank int) Range {
	for _, host := range d.Hosts {
		if host.Lo <= rank && rank < host.Hi {
			return host
		}
	}
	return Range{rank, rank + 1}
}

// Aggregates reports whether a holder is brought one contribution per host:
// a server is, a worker hears from every other worker itself.
func (d *Declaration) Aggregates(owner cluster.Task) bool {
	return len(d.Hosts) > 0 && owner.Role == cluster.PS
}

// Aggregated says of every variable, and of the loss, whether the workers of
// a host add their gradients of it before one of them sends the sum.
func (d *Declaration) Aggregated() []bool {
	all := make([]bool, len(d.Variables)+1)
	for _, p := range d.AllPieces() {
		all[p.Variable] = d.Aggregates(d.Holders[p.Holder])
	}
	return all
}

// PiecesOf returns a holder's pieces, and that of the loss where it has it. To the
// workers of a host its first, -1, is the holder of all that the host adds up.
func (d *Declaration) PiecesOf(owner int) (pieces []Piece) {
	if owner < 0 {
		for i, aggregated := range d.Aggregated() {
			if aggregated {
				pieces = append(pieces, Piece{Variable: i, Holder: owner, Count: d.Variable(i).Units()})
			}
		}
		return pieces
	}
	for _, p := range d.AllPieces() {
		if p.Holder == owner {
			pieces = append(pieces, p)
		}
	}
	return pieces
}
