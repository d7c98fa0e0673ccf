package layout

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Transfer is rows [lo, hi) of a variable that one holder had and one is to
// have. They lie in one old and one new piece.
type Transfer struct {
	Lo, Hi   int
	Old, New Piece
}

// Transfers returns the rows of all new pieces that are not old ones as they
// are, each row once, by variable and row. Both maps must cover the same
// variables.
func Transfers(old, new []Piece) (all []Transfer) {
	old, new = inOrder(old), inOrder(new)
	for len(old) > 0 && len(new) > 0 {
		a, b := old[0], new[0]
		lo, hi := max(a.Offset, b.Offset), min(a.Offset+a.Count, b.Offset+b.Count)
		if a != b {
			all = append(all, Transfer{lo, hi, a, b})
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

// Placed is d with other pieces, or an error that says why they cannot be.
func (d *Declaration) Placed(pieces []Piece) (*Declaration, error) {
	if !d.Movable {
		return nil, errors.New("new owners for variables that were not declared movable")
	}
	next := *d
	next.Pieces = slices.Clone(pieces)
	if err := (checker{&next}).pieces(); err != nil {
		return nil, err
	}
	for _, t := range Transfers(d.Pieces, next.Pieces) {
		v := d.Variables[t.New.Variable]
		if v.Sparse == nil {
			return nil, fmt.Errorf("variable %q: only sparse variables can move", v.Name)
		}
		from, to := d.Holders[t.Old.Holder], d.Holders[t.New.Holder]
		if d.Aggregates(from) != d.Aggregates(to) {
			return nil, fmt.Errorf("variable %q: from %s to %s: with local aggregation it stays with one kind of owner", v.Name, from, to)
		}
	}
	return &next, nil
}

// Holding says of every holder whether it has a piece, or the loss.
func (d *Declaration) Holding() []bool {
	all := make([]bool, len(d.Holders))
	for _, p := range d.AllPieces() {
		all[p.Holder] = true
	}
	return all
}

// Growth is the bytes of a holder's pieces that it does not have as they are.
func (d *Declaration) Growth(before *Declaration, owner int) (bytes uint64) {
	stays := map[Piece]bool{}
	for _, p := range before.Pieces {
		stays[p] = true
	}
	for _, p := range d.Pieces {
		if p.Holder != owner || stays[p] {
			continue
		}
		v := d.Variables[p.Variable]
		slots := d.Rule(v).Slots()
		bytes += uint64(p.Count)*uint64(v.UnitBytes())*uint64(1+slots) + uint64(p.Count)/8
	}
	return bytes
}
