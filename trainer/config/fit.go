package config

import (
	"fmt"
	"strings"

	"github.com/plx-run/plx/trainer/policy"
)

// mostVirtual bounds the virtual workers of a job, as package layout does.
const mostVirtual = 1 << 16

// CountVirtual is the number of virtual workers of a job with so many workers
// now, which began with first.
func (c *Config) CountVirtual(workers, first int) (int, error) {
	if c.VirtualWorkers > mostVirtual || c.Replicas > mostVirtual || c.Accumulate > mostVirtual || workers*c.Replicas*c.Accumulate > mostVirtual {
		return 0, fmt.Errorf("--virtual-workers %d, --replicas %d, --accumulate %d with %s: at most %d virtual workers are possible",
			c.VirtualWorkers, c.Replicas, c.Accumulate, count(workers), mostVirtual)
	}
	each := c.Replicas * c.Accumulate
	if c.VirtualWorkers == 0 {
		return max(workers, first) * each, nil
	}
	if each > 1 && c.VirtualWorkers != workers*each {
		return 0, fmt.Errorf("--virtual-workers %d, but %s times --replicas %d times --accumulate %d make %d: leave one of them out",
			c.VirtualWorkers, count(workers), c.Replicas, c.Accumulate, workers*each)
	}
	if c.VirtualWorkers < workers {
		return 0, manyWorkersError{workers, c.VirtualWorkers}
	}
	return c.VirtualWorkers, nil
}

// manyWorkersError is a job with more workers than virtual ones.
type manyWorkersError struct{ workers, virtual int }

func (e manyWorkersError) Error() string {
	return fmt.Sprintf("%d workers, but %d virtual workers: every worker needs at least one", e.workers, e.virtual)
}

// Hint names what would fit.
func (e manyWorkersError) Hint() string {
	return fmt.Sprintf("raise --virtual-workers to %d or more, or launch on fewer devices", e.workers)
}

// Mode is how far workers may drift apart. A worker that trains alone has nobody
// to wait for.
func (c *Config) Mode(workers, servers int) (policy.Sync, error) {
	if c.Sync == "" || workers == 1 && servers == 0 {
		return policy.Sync{}, nil
	}
	mode, err := policy.ParseSync(c.Sync)
	if err != nil {
		return mode, fmt.Errorf("--sync: %w", err)
	}
	return mode, nil
}

// Suits refuses what so many workers and servers cannot do. It needs no model, so
// the program gets the error before it reads its data.
func (c *Config) Suits(workers, servers int) error {
	mode, err := c.Mode(workers, servers)
	if err != nil {
		return err
	}
	arch, err := policy.ParseArchitecture(c.Arch)
	chosen, loose := err == nil, !mode.InStep()
	switch {
	case loose && chosen && arch != policy.Servers:
		return fmt.Errorf("--sync %s with --arch %s: a worker that holds variables would hold up the others; use --arch ps", mode, c.Arch)
	case workers > 1 && servers == 0 && (loose || chosen && arch == policy.Servers):
		return serverlessError{workers, loose, chosen}
	}
	if err := mode.Check(workers); err != nil {
		return fmt.Errorf("--sync: %w", err)
	}
	return nil
}

// serverlessError is a job that needs a server and has none.
type serverlessError struct {
	workers int
	loose   bool // workers that do not wait for each other cannot hold variables
	chosen  bool // --arch is ps, so the hint also names --arch allreduce
}

func (e serverlessError) Error() string {
	return count(e.workers) + " and no server to keep the variables on"
}

// Hint names a way to get servers, or to train without.
func (e serverlessError) Hint() string {
	var other []string
	if e.loose {
		other = append(other, "--sync sync")
	}
	if e.chosen {
		other = append(other, "--arch allreduce")
	}
	return "launch without --ps none, or train with " + strings.Join(other, " ")
}

// Place returns the architecture of a job that Suits accepts, and why it differs
// from what the user chose. sparse and dense are the kinds of variables that the
// model has.
func (c *Config) Place(workers, servers int, sparse, dense bool) (arch policy.Architecture, why string) {
	mode, _ := c.Mode(workers, servers) // Suits has checked it
	return policy.Choose(c.Arch, mode, workers, servers, sparse, dense)
}

func count(workers int) string {
	if workers == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", workers)
}
