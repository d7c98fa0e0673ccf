// Package config holds how a job trains: what the program chooses in code, and over
// that what the user chooses with flags.
//
//	c := config.Default().With(config.Config{Arch: "ps"})        // of the program
//	err := c.ParseCommandLine(task)                              // flags win over it
//	err = c.Suits(workers, servers)                              // before the program reads its data
//	c, err = c.Complete(config.Config{GlobalBatch: 64})          // of Parallelize; flags still win
//
// A [Config] is what the program writes, and an [Effective] what is in effect for a job.
//
// # What it refuses
//
// It refuses values that contradict each other or the job's size, with a hint.
// It knows no model: what a model lacks, package trainer says.
package config

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"time"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/trainer/hooks"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/timeline"
)

// Effective is the configuration of a job as far as it is known: defaults, over them
// what the program has chosen so far, and over that the flags.
type Effective struct {
	Config
	given []given // the flags of the command line
}

// Default is the configuration before the program and the user have chosen anything.
func Default() Effective {
	return Effective{Config: Config{
		Replicas: 1, Accumulate: 1, BucketBytes: 1 << 20, PartitionBytes: 4 << 20, Device: "auto", Balance: "load", CombineRows: "loss",
		FirstMeeting: 10, Report: 50, ProfileDir: ".", SummaryEverySteps: 100, CheckpointKeep: 3, StartTimeout: 2 * time.Minute, PeerTimeout: 30 * time.Second,
	}}
}

// With is c with the fields of configs that are set, those of later ones first. It
// does not check them.
func (c Effective) With(configs ...Config) Effective {
	into := reflect.ValueOf(&c.Config).Elem()
	for _, add := range configs {
		for i, from := 0, reflect.ValueOf(add); i < from.NumField(); i++ {
			if f := from.Field(i); !f.IsZero() {
				into.Field(i).Set(f)
			}
		}
	}
	flags := c.flags()
	for _, g := range c.given { // the flags of the command line win
		flags.Set(g.name, g.value) // it is what the flag's value had printed
	}
	return c
}

// Complete is c with what the program adds after its job has begun.
func (c Effective) Complete(configs ...Config) (Effective, error) {
	all := c.With(configs...)
	if err := all.Check(); err != nil {
		return c, err
	}
	for _, f := range []struct {
		name    string
		was, is any
	}{
		{"Seed", c.Seed, all.Seed}, {"VirtualWorkers", c.VirtualWorkers, all.VirtualWorkers}, {"Replicas", c.Replicas, all.Replicas},
		{"Accumulate", c.Accumulate, all.Accumulate}, {"Device", c.Device, all.Device},
		{"CheckpointDir", c.CheckpointDir, all.CheckpointDir}, {"CheckpointKeep", c.CheckpointKeep, all.CheckpointKeep},
	} {
		if f.was != f.is {
			return c, HintError{fmt.Sprintf("trainer.Config: %s is %v, but the job has begun with %v", f.name, f.is, f.was), "set it in the configuration of trainer.Main, before the program runs"}
		}
	}
	return all, nil
}

// Check refuses values that make no sense in any job.
func (c *Effective) Check() error {
	if err := c.checkNames(); err != nil {
		return err
	}
	if err := c.checkNumbers(); err != nil {
		return err
	}
	if err := c.checkProgram(); err != nil {
		return err
	}
	switch {
	case c.CheckpointEverySteps > 0 && c.CheckpointEverySecs > 0:
		return HintError{"--ckpt-every-steps and --ckpt-every-secs: give one of them", "if the program sets one, switch it off with 0"}
	case c.CheckpointDir == "" && c.CheckpointEverySteps+c.CheckpointEverySecs > 0:
		return errors.New("checkpoints are to be made, but there is no --ckpt-dir for them")
	case c.ProfileSteps == "" && c.ProfileWorkers != "":
		return errors.New("--profile-workers needs --profile-steps, which says what they record")
	case c.ProfileSteps == "":
		return nil
	}
	_, err := c.Profile(0)
	return err
}

// defaultPeriod is the time from one checkpoint to the next if nothing else is said.
const defaultPeriod = 600 * time.Second

// CheckpointPeriod is the time from one checkpoint to the next; 0 means that steps count.
func (c *Effective) CheckpointPeriod() time.Duration {
	if c.CheckpointEverySteps == 0 && c.CheckpointEverySecs == 0 {
		return defaultPeriod
	}
	return time.Duration(c.CheckpointEverySecs) * time.Second
}

// Profile returns the steps of a worker's timeline; none: it writes none.
func (c *Effective) Profile(worker int) (timeline.Steps, error) {
	if c.ProfileSteps == "" {
		return nil, nil
	}
	steps, err := timeline.ParseSteps(c.ProfileSteps)
	if err != nil {
		return nil, fmt.Errorf("--profile-steps: %w", err)
	}
	if c.ProfileWorkers == "" {
		return steps, nil
	}
	workers, err := timeline.ParseSteps(c.ProfileWorkers)
	if err != nil {
		return nil, fmt.Errorf("--profile-workers: %w", err)
	}
	if !workers.Contains(uint64(worker)) {
		return nil, nil
	}
	return steps, nil
}

// checkProfile refuses workers for a timeline that the job does not have.
func (c *Effective) checkProfile(workers int) error {
	for i := range workers {
		if steps, err := c.Profile(i); steps != nil || err != nil {
			return err
		}
	}
	if c.ProfileSteps == "" {
		return nil
	}
	return HintError{fmt.Sprintf("--profile-workers %s: the job has %s", c.ProfileWorkers, plural.Count(workers, "worker")), "the first worker is 0"}
}

func (c *Effective) checkNames() error {
	if _, err := policy.ParseArchitecture(c.Arch); err != nil && c.Arch != "" && c.Arch != "auto" {
		return fmt.Errorf("--arch %q: want ps, allreduce, hybrid or auto", c.Arch)
	}
	if c.Balance != "load" && c.Balance != "bytes" {
		return fmt.Errorf("--balance %q: want load or bytes", c.Balance)
	}
	if c.CombineRows != "loss" && c.CombineRows != "add" && c.CombineRows != "average" {
		return fmt.Errorf("--combine-rows %q: want loss, add or average", c.CombineRows)
	}
	if c.Device != "auto" && c.Device != "gpu" && c.Device != "cpu" {
		return fmt.Errorf("--device %q: want auto, gpu or cpu", c.Device)
	}
	if c.Sync != "" {
		if _, err := policy.ParseSync(c.Sync); err != nil {
			return fmt.Errorf("--sync: %w", err)
		}
	}
	return nil
}

// checkProgram refuses values that only a program can set.
func (c *Effective) checkProgram() error {
	switch {
	case c.GlobalBatch < 0 || c.ShardBatch < 0:
		return fmt.Errorf("global batch of %d rows, shard batch of %d: want at least 1", c.GlobalBatch, c.ShardBatch)
	case c.GlobalBatch > 0 && c.ShardBatch > 0:
		return fmt.Errorf("global batch of %d rows and shard batch of %d: give one of them", c.GlobalBatch, c.ShardBatch)
	case !(c.ClipNorm >= 0):
		return fmt.Errorf("clip norm %v: want at least 0", c.ClipNorm)
	case c.AtEndOfData < WaitForAll || c.AtEndOfData > EndTogether:
		return fmt.Errorf("ending %d: want WaitForAll, JoinOthers or EndTogether", c.AtEndOfData)
	case c.StartTimeout < time.Millisecond || c.PeerTimeout < 10*time.Millisecond:
		return fmt.Errorf("start timeout %v, peer timeout %v: want at least 1ms and 10ms", c.StartTimeout, c.PeerTimeout)
	case c.FirstMeeting < 1 || c.Report < 1:
		return fmt.Errorf("first meeting after %d steps, report after %d: want at least 1", c.FirstMeeting, c.Report)
	}
	return hooks.Check(c.Hooks)
}

func (c *Effective) checkNumbers() error {
	for _, n := range []struct {
		flag         string
		value, least int
	}{
		{"virtual-workers", c.VirtualWorkers, 0}, {"replicas", c.Replicas, 1}, {"accumulate", c.Accumulate, 1},
		{"parallel-replicas", c.ParallelReplicas, 0}, {"stop-at-step", c.StopAtStep, 0}, {"check-parameters", c.CheckParameters, 0},
		{"bucket-bytes", c.BucketBytes, 1}, {"partition-bytes", c.PartitionBytes, 1}, {"partitions", c.Partitions, 0},
		{"min-partitions", c.MinPartitions, 0}, {"max-partitions", c.MaxPartitions, 0},
		{"ckpt-every-steps", c.CheckpointEverySteps, 0}, {"ckpt-every-secs", c.CheckpointEverySecs, 0}, {"ckpt-keep", c.CheckpointKeep, 1},
		{"summary-every-steps", c.SummaryEverySteps, 1},
	} {
		if n.value < n.least {
			return fmt.Errorf("--%s is %d: want at least %d", n.flag, n.value, n.least)
		}
	}
	if most := c.MaxPartitions; most > 0 && (c.MinPartitions > most || c.Partitions > most) || c.Partitions > 0 && c.Partitions < c.MinPartitions {
		return fmt.Errorf("--partitions %d, --min-partitions %d and --max-partitions %d contradict each other", c.Partitions, c.MinPartitions, most)
	}
	return nil
}

// ReplicaCount is how many replicas a worker with so many virtual workers, one
// of so many workers on its host, computes side by side: one BLAS thread each.
func (c *Effective) ReplicaCount(virtualWorkers, onHost int) int {
	if c.ParallelReplicas > 0 {
		return min(c.ParallelReplicas, virtualWorkers)
	}
	return max(1, min(virtualWorkers, runtime.GOMAXPROCS(0)/max(onHost, 1)))
}

// Exact reports whether the user asked for the same bits everywhere.
func (c *Effective) Exact() bool { return c.VirtualWorkers > 0 || c.Digest }

// mostVirtual bounds the virtual workers of a job, as package layout does.
const mostVirtual = 1 << 16

// CountVirtual is the number of virtual workers of a job with so many workers
// now, which began with first.
func (c *Effective) CountVirtual(workers, first int) (int, error) {
	if c.VirtualWorkers > mostVirtual || c.Replicas > mostVirtual || c.Accumulate > mostVirtual || workers*c.Replicas*c.Accumulate > mostVirtual {
		return 0, fmt.Errorf("--virtual-workers %d, --replicas %d, --accumulate %d with %s: at most %d virtual workers are possible",
			c.VirtualWorkers, c.Replicas, c.Accumulate, plural.Count(workers, "worker"), mostVirtual)
	}
	each := c.Replicas * c.Accumulate
	if c.VirtualWorkers == 0 {
		return max(workers, first) * each, nil
	}
	if each > 1 && c.VirtualWorkers != workers*each {
		return 0, HintError{
			Text: fmt.Sprintf("--virtual-workers %d, but %s times --replicas %d times --accumulate %d make %d: leave one of them out",
				c.VirtualWorkers, plural.Count(workers, "worker"), c.Replicas, c.Accumulate, workers*each),
			Help: "if the program sets one, switch it off: --virtual-workers 0, --replicas 1 or --accumulate 1",
		}
	}
	if c.VirtualWorkers < workers {
		return 0, HintError{
			Text: fmt.Sprintf("%d workers, but %d virtual workers: every worker needs at least one", workers, c.VirtualWorkers),
			Help: fmt.Sprintf("raise --virtual-workers to %d or more, or launch on fewer devices", workers),
		}
	}
	return c.VirtualWorkers, nil
}

// Rows is how many rows of the global batch each of so many virtual workers takes. It sets
// GlobalBatch if ShardBatch says what it is.
func (c *Effective) Rows(virtual int) (int, error) {
	if c.ShardBatch > 0 {
		c.GlobalBatch = c.ShardBatch * virtual
	}
	if c.GlobalBatch == 0 {
		return 0, HintError{"the batch size is not known", "give trainer.Config{GlobalBatch: rows} to Parallelize, or ShardBatch"}
	}
	return Rows(c.GlobalBatch, virtual)
}

// Rows is how many rows of a global batch each of so many virtual workers takes.
func Rows(batch, virtual int) (int, error) {
	if batch < 1 {
		return 0, fmt.Errorf("global batch of %d rows: want at least 1", batch)
	}
	if batch%virtual != 0 {
		return 0, HintError{
			Text: fmt.Sprintf("a global batch of %d rows cannot be divided over %d virtual workers", batch, virtual),
			Help: rowsHelp(batch, virtual),
		}
	}
	return batch / virtual, nil
}

// rowsHelp says which batch fits the virtual workers, and how many of these fit the batch.
func rowsHelp(batch, virtual int) string {
	help := fmt.Sprintf("use a batch of %d rows (GlobalBatch, or the program's --batch-size)", (batch+virtual-1)/virtual*virtual)
	for n := virtual; n <= batch; n++ {
		if batch%n == 0 {
			return fmt.Sprintf("%s, or --virtual-workers %d", help, n)
		}
	}
	return help + ", or fewer workers"
}

// HintError is an error with a hint that names what would fit.
type HintError struct{ Text, Help string }

func (e HintError) Error() string { return e.Text }

// Hint returns the help.
func (e HintError) Hint() string { return e.Help }

// Mode is how far workers may drift apart. A worker that trains alone has nobody
// to wait for.
func (c *Effective) Mode(workers, servers int) (policy.Sync, error) {
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
func (c *Effective) Suits(workers, servers int) error {
	if err := c.checkProfile(workers); err != nil {
		return err
	}
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
	return HintError{plural.Count(workers, "worker") + " and no server to keep the variables on", hint}
}
