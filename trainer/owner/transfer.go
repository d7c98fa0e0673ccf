package owner

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// transfer is rows [lo, hi) of a variable that one owner had and one is to
// have. They lie in one old and one new piece.
type transfer struct {
	lo, hi   int
	old, new Piece
}

// transfers returns the rows of all new pieces that are not old ones as they
// are, each row once, by variable and row. Both maps must cover the same
// variables.
func transfers(old, new []Piece) (all []transfer) {
	old, new = inOrder(old), inOrder(new)
	for len(old) > 0 && len(new) > 0 {
		a, b := old[0], new[0]
		lo, hi := max(a.Offset, b.Offset), min(a.Offset+a.Count, b.Offset+b.Count)
		if a != b {
			all = append(all, transfer{lo, hi, a, b})
		}
		if hi == a.Offset+a.Count {
			old = old[1:]
		}
		if hi == b.Offset+b.Count {
			new = new[1:]
		}
	}
	return all
}

// inOrder returns pieces by variable and offset.
func inOrder(pieces []Piece) []Piece {
	return slices.SortedFunc(slices.Values(pieces), func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.Variable, b.Variable), cmp.Compare(a.Offset, b.Offset))
	})
}

// placed is d with other pieces, or an error that says why they cannot be.
func (d *Declaration) placed(pieces []Piece) (*Declaration, error) {
	if !d.Movable {
		return nil, errors.New("new owners for variables that were not declared movable")
	}
	next := *d
	next.Pieces = slices.Clone(pieces)
	if err := next.checkPieces(); err != nil {
		return nil, err
	}
	for _, t := range transfers(d.Pieces, next.Pieces) {
		v := d.Variables[t.new.Variable]
		if v.Sparse == nil {
			return nil, fmt.Errorf("variable %q: only sparse variables can move", v.Name)
		}
		from, to := d.Owners[t.old.Owner], d.Owners[t.new.Owner]
		if d.aggregates(from) != d.aggregates(to) {
			return nil, fmt.Errorf("variable %q: from %s to %s: with local aggregation it stays with one kind of owner", v.Name, from, to)
		}
	}
	return &next, nil
}

// owning says of every owner whether it has a piece, or the tally.
func (d *Declaration) owning() []bool {
	all := make([]bool, len(d.Owners))
	for _, p := range d.pieces() {
		all[p.Owner] = true
	}
	return all
}
