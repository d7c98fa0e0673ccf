package owner

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/plx-run/plx/trainer/cluster"
)

const (
	maxLeaves  = 1 << 16
	maxOwners  = 1 << 16
	maxMetrics = 1 << 10
	maxFirst   = 1 << 60 // steps that are counted from there on do not overflow

	maxCheckpoint = 256 // bytes of its name
)

// Check says what in d makes no sense, without regard to other workers.
func (d *Declaration) Check() error {
	if d.StartMillis < 1 || d.SilenceMillis < 1 {
		return errors.New("declaration: start and silence must be positive")
	}
	if d.Leaves < 1 || d.Leaves > maxLeaves || d.Metrics < 0 || d.Metrics > maxMetrics || d.BucketBytes < 0 {
		return fmt.Errorf("declaration: %d virtual workers, %d metrics, buckets of %d bytes: want 1 to %d, 0 to %d, and not negative",
			d.Leaves, d.Metrics, d.BucketBytes, maxLeaves, maxMetrics)
	}
	if !(d.Clip >= 0) || math.IsInf(d.Clip, 1) {
		return fmt.Errorf("declaration: gradients clipped at norm %v: want a finite positive number, 0 for none", d.Clip)
	}
	if d.First > maxFirst || len(d.Checkpoint) > maxCheckpoint || d.Checkpoint == "" && d.First > 0 {
		return fmt.Errorf("declaration: begins with step %d from checkpoint %q: want a step up to %d and a name of at most %d bytes, or neither",
			d.First, d.Checkpoint, uint64(maxFirst), maxCheckpoint)
	}
	if err := d.Optimizer.Check(); err != nil {
		return err
	}
	if err := covers(d.Workers, d.Leaves); err != nil {
		return fmt.Errorf("virtual workers of the workers: %w", err)
	}
	if err := d.checkVariables(); err != nil {
		return err
	}
	if err := d.checkOwners(); err != nil {
		return err
	}
	return d.checkMode()
}

// covers wants ranges that are not empty and follow each other from 0 to n.
func covers(ranges []Range, n int) error {
	end := 0
	for i, r := range ranges {
		if r.Lo != end || r.Hi <= r.Lo || r.Hi > n {
			return fmt.Errorf("range %d is [%d, %d), want it to begin at %d and end before %d", i, r.Lo, r.Hi, end, n+1)
		}
		end = r.Hi
	}
	if end != n {
		return fmt.Errorf("%d of %d are covered", end, n)
	}
	return nil
}

func (d *Declaration) checkVariables() error {
	seen := map[string]bool{}
	for _, v := range d.Variables {
		if v.Name == "" || seen[v.Name] {
			return fmt.Errorf("variable %q: names must be distinct and not empty", v.Name)
		}
		seen[v.Name] = true
		if err := v.check(); err != nil {
			return err
		}
	}
	return d.checkPieces()
}

// checkPieces wants every unit of every variable to be owned exactly once.
func (d *Declaration) checkPieces() error {
	sorted := slices.SortedFunc(slices.Values(d.Pieces), func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.Variable, b.Variable), cmp.Compare(a.Offset, b.Offset))
	})
	for i, v := range d.Variables {
		n, end := v.units(), 0
		for ; len(sorted) > 0 && sorted[0].Variable == i; sorted = sorted[1:] {
			p := sorted[0]
			if p.Offset != end || p.Count <= 0 || p.Count > n-end || p.Owner < 0 || p.Owner >= len(d.Owners) {
				return fmt.Errorf("variable %q: bad piece %+v with %d owners", v.Name, p, len(d.Owners))
			}
			if v.Sparse == nil && p.Offset%BlockElements != 0 {
				return fmt.Errorf("variable %q: bad piece %+v: does not begin at a block of %d", v.Name, p, BlockElements)
			}
			end += p.Count
		}
		if end != n {
			return fmt.Errorf("variable %q: %d of %d have an owner", v.Name, end, n)
		}
	}
	if len(sorted) > 0 {
		return fmt.Errorf("piece of an undeclared variable: %+v", sorted[0])
	}
	return nil
}

// checkOwners wants every owner but the first, which has the tally, to own a
// piece, unless it may get one later.
func (d *Declaration) checkOwners() error {
	if len(d.Owners) == 0 || len(d.Owners) > maxOwners {
		return fmt.Errorf("declaration: %d owners, want 1 to %d", len(d.Owners), maxOwners)
	}
	owns := make([]bool, len(d.Owners))
	owns[0] = true
	for _, p := range d.Pieces {
		owns[p.Owner] = true
	}
	for i, t := range d.Owners {
		switch {
		case t.Role != cluster.PS && t.Role != cluster.Worker || t.Index < 0,
			t.Role == cluster.Worker && t.Index >= len(d.Workers):
			return fmt.Errorf("owner %s is no task of this job", t)
		case slices.Contains(d.Owners[:i], t):
			return fmt.Errorf("owner %s is named twice", t)
		case !owns[i] && !d.Movable:
			return fmt.Errorf("owner %s owns nothing", t)
		}
	}
	return nil
}

// checkMode refuses what does not work together, with the reason.
func (d *Declaration) checkMode() error {
	if err := d.Sync.Check(len(d.Workers)); err != nil {
		return err
	}
	if err := d.checkCut(); err != nil {
		return err
	}
	if d.Movable && !d.Sync.Together() {
		return fmt.Errorf("synchronisation %s keeps variables with their owners: movable ones need synchronisation sync", d.Sync)
	}
	if !d.Sync.Together() && !d.served() {
		return fmt.Errorf("synchronisation %s works with servers as owners only: a worker that owns variables is needed in every step; "+
			"choose the architecture ps or synchronisation sync", d.Sync)
	}
	if d.Sync.Mode == Backup && d.norms() {
		return fmt.Errorf("synchronisation %s and the norm of the gradients do not work together: which workers count is known "+
			"to the servers step by step, nobody is there to add the norm; leave out clipping or choose another mode", d.Sync)
	}
	return d.checkHosts()
}
