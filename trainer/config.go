package trainer

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/plx-run/plx/trainer/owner"
	"github.com/plx-run/plx/trainer/timeline"
)

// config is how a job trains, whatever its model: what the program says in
// its Settings, and over that what the user says in flags.
type config struct {
	arch, sync      string
	virtual         int // virtual workers of the whole job; 0: one per replica and accumulated batch
	replicas        int // of one worker
	accumulate      int // batches that one replica takes in a step
	lanes           int // 0: as the cores allow
	seed            uint64
	digest          bool
	stopAt          int // 0: never
	checkParameters int // every so many steps; 0: never
	checkNumerics   bool
	bucket          int // bytes
	partition       int // bytes
	partitions      int // of tables with a partitioner; 0: found out
	search          bool
	balance         string
	prefetch        bool
	look, tell      int // steps after which workers meet for the first time, and to report
	summaries       string
	exportGraph     string
	ckptDir         string
	ckptSteps       int // from one checkpoint to the next; 0: see ckptSecs
	ckptSecs        int // likewise
	ckptKeep        int // how many are kept
	profileSteps    string
	profileDir      string
	profile         timeline.Steps
	fresh           bool // no process is kept from one generation to the next
	curt            bool // a mistake in a flag is not followed by the usage
}

// Setting is a program's own choice of how it trains. The flag of the same
// name wins over it.
type Setting func(*config)

// Arch says where variables live: ps, allreduce, hybrid or auto. See --arch.
func Arch(name string) Setting { return func(c *config) { c.arch = name } }

// Sync says how far workers may drift apart: sync, async, ssp:K, group:G or
// backup:B. See --sync and docs/synchronisation.md.
func Sync(mode string) Setting { return func(c *config) { c.sync = mode } }

// VirtualWorkers cuts every batch into v data shards, whatever the number of
// workers. Where it is set the weights are the same bits for any number of
// workers up to v, and hosts whose arithmetic differs are refused.
func VirtualWorkers(v int) Setting { return func(c *config) { c.virtual = v } }

// Replicas makes every worker drive r replicas of the model: the same as r
// times as many workers.
func Replicas(r int) Setting { return func(c *config) { c.replicas = r } }

// Accumulate makes every replica add the gradients of n batches in a step:
// the same as n times as many workers, with the memory of one.
func Accumulate(n int) Setting { return func(c *config) { c.accumulate = n } }

// Seed is what first values, shuffling and dropout follow from.
func Seed(s uint64) Setting { return func(c *config) { c.seed = s } }

// FreshProcess has every generation of a task be a process of its own. It is
// for programs whose result depends on what they keep in package variables.
func FreshProcess() Setting { return func(c *config) { c.fresh = true } }

// defaults is the configuration before settings and flags.
func defaults() config {
	return config{replicas: 1, accumulate: 1, bucket: 1 << 20, partition: 4 << 20, profileDir: ".", prefetch: true, search: true, balance: "load", look: 10, tell: 50, ckptKeep: 3}
}

// check says which value makes no sense by itself.
func (c *config) check() error {
	switch c.arch {
	case "", "ps", "allreduce", "hybrid", "auto":
	default:
		return fmt.Errorf("--arch %q: want ps, allreduce, hybrid or auto", c.arch)
	}
	if c.balance != "load" && c.balance != "bytes" {
		return fmt.Errorf("--balance %q: want load or bytes", c.balance)
	}
	if c.sync != "" {
		if _, err := owner.ParseSync(c.sync); err != nil {
			return fmt.Errorf("--sync: %w", err)
		}
	}
	for _, n := range []struct {
		flag         string
		value, least int
	}{
		{"virtual-workers", c.virtual, 0}, {"replicas", c.replicas, 1}, {"accumulate", c.accumulate, 1},
		{"lanes", c.lanes, 0}, {"stop-at-step", c.stopAt, 0}, {"check-parameters", c.checkParameters, 0},
		{"bucket-bytes", c.bucket, 1}, {"partition-bytes", c.partition, 1},
		{"partitions", c.partitions, 0},
		{"ckpt-every-steps", c.ckptSteps, 0}, {"ckpt-every-secs", c.ckptSecs, 0}, {"ckpt-keep", c.ckptKeep, 1},
	} {
		if n.value < n.least {
			return fmt.Errorf("--%s is %d: want at least %d", n.flag, n.value, n.least)
		}
	}
	switch {
	case c.ckptSteps > 0 && c.ckptSecs > 0:
		return errors.New("--ckpt-every-steps and --ckpt-every-secs: give one of them")
	case c.ckptDir == "" && c.ckptSteps+c.ckptSecs > 0:
		return errors.New("checkpoints are to be made, but there is no --ckpt-dir for them")
	case c.profileSteps == "":
		return nil
	}
	var err error
	if c.profile, err = timeline.ParseSteps(c.profileSteps); err != nil {
		return fmt.Errorf("--profile-steps: %w", err)
	}
	return nil
}

// maxVirtual bounds the virtual workers of a job, as package owner does.
const maxVirtual = 1 << 16

// leaves is the number of virtual workers of a job with so many workers, which
// began with so many.
func (c *config) leaves(workers, first int) (int, error) {
	if c.virtual > maxVirtual || c.replicas > maxVirtual || c.accumulate > maxVirtual || workers*c.replicas*c.accumulate > maxVirtual {
		return 0, fmt.Errorf("--virtual-workers %d, --replicas %d, --accumulate %d with %s: at most %d virtual workers are possible",
			c.virtual, c.replicas, c.accumulate, count(workers, "worker"), maxVirtual)
	}
	each := c.replicas * c.accumulate
	if c.virtual == 0 {
		return max(workers, first) * each, nil
	}
	if each > 1 && c.virtual != workers*each {
		return 0, fmt.Errorf("--virtual-workers %d, but %s times --replicas %d times --accumulate %d make %d: leave one of them out",
			c.virtual, count(workers, "worker"), c.replicas, c.accumulate, workers*each)
	}
	if c.virtual < workers {
		return 0, manyWorkersError{workers, c.virtual}
	}
	return c.virtual, nil
}

// manyWorkersError is a job with more workers than virtual ones.
type manyWorkersError struct{ workers, virtual int }

func (e manyWorkersError) Error() string {
	return fmt.Sprintf("%d workers, but %d virtual workers: every worker needs at least one", e.workers, e.virtual)
}

// Hint says what would fit.
func (e manyWorkersError) Hint() string {
	return fmt.Sprintf("raise --virtual-workers to %d or more, or launch on fewer devices", e.workers)
}

// laneCount is how many replicas a worker with so many virtual workers
// computes side by side: one BLAS thread each.
func (c *config) laneCount(own, onHost int) int {
	if c.lanes > 0 {
		return min(c.lanes, own)
	}
	return max(1, min(own, runtime.GOMAXPROCS(0)/max(onHost, 1)))
}

// exact reports whether the user asked for the same bits everywhere.
func (c *config) exact() bool { return c.virtual > 0 || c.digest }

// mode is how far workers drift apart. One that trains alone has nobody to wait
// for.
func (c *config) mode(workers, servers int) (owner.Sync, error) {
	if c.sync == "" || workers == 1 && servers == 0 {
		return owner.Sync{}, nil
	}
	mode, err := owner.ParseSync(c.sync)
	if err != nil {
		return mode, fmt.Errorf("--sync: %w", err)
	}
	return mode, nil
}

// suits says what of this cannot be done by so many workers and servers. It needs
// no model, so that a program hears of it before it reads its data.
func (c *config) suits(workers, servers int) error {
	mode, err := c.mode(workers, servers)
	if err != nil {
		return err
	}
	loose := !mode.Together()
	switch {
	case loose && c.arch != "" && c.arch != "auto" && c.arch != "ps":
		return fmt.Errorf("--sync %s with --arch %s: a worker that owns variables would hold up the others; use --arch ps", mode, c.arch)
	case workers > 1 && servers == 0 && (loose || c.arch == "ps"):
		return serverlessError{workers, loose, c.arch == "ps"}
	}
	if err := mode.Check(workers); err != nil {
		return fmt.Errorf("--sync: %w", err)
	}
	return nil
}

// place decides where variables live, for what suits. sparse and dense say which
// kinds the model has.
func (c *config) place(workers, servers int, sparse, dense bool) (arch, why string) {
	mode, _ := c.mode(workers, servers) // checked at the start
	arch = c.arch
	switch {
	case workers == 1 && servers == 0:
		return "allreduce", "alone"
	case (arch == "" || arch == "auto") && !mode.Together():
		arch, why = "ps", "--sync "+c.sync+" needs servers"
	case arch == "" || arch == "auto":
		arch = "hybrid"
	}
	switch {
	case arch == "hybrid" && !sparse:
		arch, why = "allreduce", "no sparse variable"
	case arch == "hybrid" && servers == 0:
		arch, why = "allreduce", "no server"
	case arch == "hybrid" && !dense && c.arch != "auto":
		arch, why = "ps", "no dense variable"
	}
	return arch, why
}

// serverlessError is a job that needs a server and has none.
type serverlessError struct {
	workers int
	loose   bool // workers that do not wait for each other cannot own variables
	chosen  bool // --arch ps was
}

func (e serverlessError) Error() string {
	return count(e.workers, "worker") + " and no server to keep the variables on"
}

// Hint says how to get servers, or to do without.
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
