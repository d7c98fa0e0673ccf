// Package config holds how a job trains, whatever its model: what the program
// chooses with settings, and over that what the user chooses with flags.
//
//	c := config.Default()
//	c.Arch = "ps"                       // a setting of the program
//	err := c.ParseCommandLine(task)     // flags win over it
//	err = c.Suits(workers, servers)     // before the program reads its data
//
// # What it refuses
//
// It refuses values that contradict each other or the job's size, with a hint.
// It knows no model: what a model lacks, package trainer says.
package config

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/timeline"
)

// Config is how a job trains. Flags of the same subject carry the help texts.
type Config struct {
	Arch           string // where variables are held; empty means hybrid, or ps if Sync needs it
	Sync           string // how far workers may drift apart; empty means sync
	VirtualWorkers int    // number in the whole job; 0 means one per replica and accumulated batch
	Replicas       int    // number per worker, with the bits of as many workers; at least 1
	Accumulate     int    // number of batches per replica whose gradients a step adds; at least 1
	Parallel       int    // number of replicas that a worker computes side by side; 0 means as the cores allow
	Seed           uint64 // number from which first values, shuffling and dropout follow

	Digest          bool // the chief prints a hash of all variables at the end
	StopAt          int  // number of steps after which training ends; 0 means when the program ends it
	CheckParameters int  // number of steps between comparisons of all variables; 0 means never
	CheckNumerics   bool // look for NaN and Inf in every gradient, not only in the loss

	BucketBytes      int    // bytes of gradients that travel together in an all-reduce; at least 1
	PartitionBytes   int    // bytes above which a variable is cut over servers; at least 1
	Partitions       int    // number of partitions of tables with a partitioner; 0 means that the autotuner finds it
	SearchPartitions bool   // the autotuner tries numbers of partitions while training goes on
	Balance          string // "load": place tables by what travels; "bytes": by size
	Prefetch         bool   // request rows of embeddings a step ahead, if the program names them
	FirstMeeting     int    // number of steps before the autotuner's first meeting
	Report           int    // number of steps before the chief reports what was sent

	SummaryDir   string         // folder for the chief's summaries; empty means none
	ExportGraph  string         // file for the graph: DOT or JSON by its extension, else both; empty means none
	ProfileSteps string         // steps of the timeline, A:B, as the user wrote them; empty means no timeline
	ProfileDir   string         // folder for timelines, and for the plot of a search for partitions
	Profile      timeline.Steps // the steps of ProfileSteps; Check writes it

	CheckpointDir   string // folder on every host; empty means no checkpoints
	CheckpointSteps int    // number of steps from one checkpoint to the next; 0 means not by steps
	CheckpointSecs  int    // seconds from one checkpoint to the next; 0 means not by time
	CheckpointKeep  int    // number of checkpoints that are kept; at least 1
}

// Default is the configuration before settings and flags.
func Default() Config {
	return Config{
		Replicas: 1, Accumulate: 1, BucketBytes: 1 << 20, PartitionBytes: 4 << 20, Prefetch: true, SearchPartitions: true,
		Balance: "load", FirstMeeting: 10, Report: 50, ProfileDir: ".", CheckpointKeep: 3,
	}
}

// Check refuses values that make no sense in any job.
func (c *Config) Check() error {
	if err := c.checkNames(); err != nil {
		return err
	}
	if err := c.checkNumbers(); err != nil {
		return err
	}
	switch {
	case c.CheckpointSteps > 0 && c.CheckpointSecs > 0:
		return errors.New("--ckpt-every-steps and --ckpt-every-secs: give one of them")
	case c.CheckpointDir == "" && c.CheckpointSteps+c.CheckpointSecs > 0:
		return errors.New("checkpoints are to be made, but there is no --ckpt-dir for them")
	case c.ProfileSteps == "":
		return nil
	}
	var err error
	if c.Profile, err = timeline.ParseSteps(c.ProfileSteps); err != nil {
		return fmt.Errorf("--profile-steps: %w", err)
	}
	return nil
}

func (c *Config) checkNames() error {
	if _, err := policy.ParseArchitecture(c.Arch); err != nil && c.Arch != "" && c.Arch != "auto" {
		return fmt.Errorf("--arch %q: want ps, allreduce, hybrid or auto", c.Arch)
	}
	if c.Balance != "load" && c.Balance != "bytes" {
		return fmt.Errorf("--balance %q: want load or bytes", c.Balance)
	}
	if c.Sync != "" {
		if _, err := policy.ParseSync(c.Sync); err != nil {
			return fmt.Errorf("--sync: %w", err)
		}
	}
	return nil
}

func (c *Config) checkNumbers() error {
	for _, n := range []struct {
		flag         string
		value, least int
	}{
		{"virtual-workers", c.VirtualWorkers, 0}, {"replicas", c.Replicas, 1}, {"accumulate", c.Accumulate, 1},
		{"parallel-replicas", c.Parallel, 0}, {"stop-at-step", c.StopAt, 0}, {"check-parameters", c.CheckParameters, 0},
		{"bucket-bytes", c.BucketBytes, 1}, {"partition-bytes", c.PartitionBytes, 1}, {"partitions", c.Partitions, 0},
		{"ckpt-every-steps", c.CheckpointSteps, 0}, {"ckpt-every-secs", c.CheckpointSecs, 0}, {"ckpt-keep", c.CheckpointKeep, 1},
	} {
		if n.value < n.least {
			return fmt.Errorf("--%s is %d: want at least %d", n.flag, n.value, n.least)
		}
	}
	return nil
}

// ReplicaCount is how many replicas a worker with so many virtual workers, one
// of so many workers on its host, computes side by side: one BLAS thread each.
func (c *Config) ReplicaCount(virtualWorkers, onHost int) int {
	if c.Parallel > 0 {
		return min(c.Parallel, virtualWorkers)
	}
	return max(1, min(virtualWorkers, runtime.GOMAXPROCS(0)/max(onHost, 1)))
}

// Exact reports whether the user asked for the same bits everywhere.
func (c *Config) Exact() bool { return c.VirtualWorkers > 0 || c.Digest }

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
		return 0, HintError{
			Text: fmt.Sprintf("%d workers, but %d virtual workers: every worker needs at least one", workers, c.VirtualWorkers),
			Help: fmt.Sprintf("raise --virtual-workers to %d or more, or launch on fewer devices", workers),
		}
	}
	return c.VirtualWorkers, nil
}

// HintError is an error with a hint that names what would fit.
type HintError struct{ Text, Help string }

func (e HintError) Error() string { return e.Text }

// Hint returns the help.
func (e HintError) Hint() string { return e.Help }

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
		return serverless(workers, loose, chosen)
	}
	if err := mode.Check(workers); err != nil {
		return fmt.Errorf("--sync: %w", err)
	}
	return nil
}

// serverless is the error of a job that needs a server and has none. loose: its
// workers do not wait for each other, so they cannot hold variables. chosen: --arch is
// ps, so the hint also names --arch allreduce. The launcher starts no servers if the
// user said --ps none, or if a script starts the program.
func serverless(workers int, loose, chosen bool) error {
	hint := "--ps all, or train with"
	if loose {
		hint += " --sync sync"
	}
	if chosen {
		hint += " --arch allreduce"
	}
	return HintError{count(workers) + " and no server to keep the variables on", hint}
}

func count(workers int) string {
	if workers == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", workers)
}
