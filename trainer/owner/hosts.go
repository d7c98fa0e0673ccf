package owner

import (
	"errors"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/cluster"
)

// hostOf returns the ranks of a worker's host.
func (d *Declaration) hostOf(rank int) Range {
	for _, host := range d.Hosts {
		if host.Lo <= rank && rank < host.Hi {
			return host
		}
	}
	return Range{rank, rank + 1}
}

// aggregates reports whether an owner is brought one contribution per host:
// a server is, a worker hears from every other worker itself.
func (d *Declaration) aggregates(owner cluster.Task) bool {
	return len(d.Hosts) > 0 && owner.Role == cluster.PS
}

// aggregated says of every variable, and of the tally, whether the workers of
// a host add their gradients of it before one of them sends the sum.
func (d *Declaration) aggregated() []bool {
	all := make([]bool, len(d.Variables)+1)
	for _, p := range d.pieces() {
		all[p.Variable] = d.aggregates(d.Owners[p.Owner])
	}
	return all
}

// checkHosts refuses an aggregation that cannot be.
func (d *Declaration) checkHosts() error {
	if len(d.Hosts) == 0 {
		return nil
	}
	if err := covers(d.Hosts, len(d.Workers)); err != nil {
		return fmt.Errorf("workers of the hosts: %w", err)
	}
	if !d.Sync.Together() || !slices.ContainsFunc(d.Owners, d.aggregates) {
		return errors.New("local aggregation works with synchronisation sync and with servers among the owners only: leave it out")
	}
	aggregated := d.aggregated()
	for _, p := range d.Pieces {
		if d.aggregates(d.Owners[p.Owner]) != aggregated[p.Variable] {
			return fmt.Errorf("variable %q is owned by servers and by workers, so the workers of a host cannot add its gradients: "+
				"give it to one kind or leave local aggregation out", d.Variables[p.Variable].Name)
		}
	}
	return nil
}
