// Package config is the training configuration of a job: what the program sets
// in code, overridden by what the user sets with command-line flags.
//
//	c := config.Default().With(config.Config{Arch: "ps"})        // set by the program
//	err := c.ParseCommandLine(task)                              // flags override it
//	err = c.Suits(workers, servers)                              // check before the program reads its data
//	c, err = c.Complete(config.Config{GlobalBatch: 64})          // set in Parallelize; flags still override it
//
// The program writes a [Config]. An [Effective] is the resulting configuration
// of the job.
//
// # What it refuses
//
// The package rejects values that contradict each other or do not fit the
// number of workers, with a hint. It knows nothing of the model; package
// trainer checks what depends on the model.
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

// Effective is the configuration of a job: the defaults, overridden by what
// the program has set so far, overridden by the command-line flags.
type Effective struct {
	Config
	setFlags []setFlag // flags that the user has set on the command line
}

// Default returns the configuration to use if neither the program nor the user
// sets anything.
func Default() Effective {
	return Effective{Config: Config{
		Replicas: 1, Accumulate: 1, BucketBytes: 1 << 20, PartitionBytes: 4 << 20, Device: "auto", Balance: "load", CombineRows: "loss",
		TuneAfterSteps: 10, Report: 50, ProfileDir: ".", SummaryEverySteps: 100, CheckpointKeep: 3, StartTimeout: 2 * time.Minute, PeerTimeout: 30 * time.Second,
	}}
}

// With returns c with all nonzero fields of configs set; later configs
// override earlier ones, and command-line flags override all of them. With
// does not check the values.
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
	for _, g := range c.setFlags { // apply the command-line flags again, so that they override the fields that were set above
		flags.Set(g.name, g.value) // Set cannot fail: the flag itself has printed this text
	}
	return c
}

// Complete returns c with the fields that the program passes to Parallelize,
// after the job has begun. It returns an error if one of them changes a field
// that can only be set in Main.
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

// Check returns an error for values that are invalid in every job, such as a
// negative batch size.
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
		return errors.New("a checkpoint interval is set without --ckpt-dir")
	case c.ProfileSteps == "" && c.ProfileWorkers != "":
		return errors.New("--profile-workers needs --profile-steps, which says what they record")
	case c.ProfileSteps == "":
		return nil
	}
	_, err := c.Profile(0)
	return err
}

// defaultPeriod is the interval between checkpoints if neither
// --ckpt-every-steps nor --ckpt-every-secs is set.
const defaultPeriod = 600 * time.Second

// CheckpointPeriod returns the interval between checkpoints. 0 means that
// checkpoints are written every CheckpointEverySteps steps instead.
func (c *Effective) CheckpointPeriod() time.Duration {
	if c.CheckpointEverySteps == 0 && c.CheckpointEverySecs == 0 {
		return defaultPeriod
	}
	return time.Duration(c.CheckpointEverySecs) * time.Second
}

// Profile returns the steps for which the given worker writes a timeline. An
// empty result means that the worker writes none.
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

// checkProfile returns an error if --profile-workers names only workers that
// the job does not have.
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

// checkProgram checks the fields that have no flag, so only a program can have
// set them.
func (c *Effective) checkProgram() error {
	switch {
	case c.GlobalBatch < 0 || c.ShardBatch < 0:
		return fmt.Errorf("global batch of %d rows, shard batch of %d: want at least 1", c.GlobalBatch, c.ShardBatch)
	case c.GlobalBatch > 0 && c.ShardBatch > 0:
		return fmt.Errorf("global batch of %d rows and shard batch of %d: give one of them", c.GlobalBatch, c.ShardBatch)
	case !(c.ClipNorm >= 0):
		return fmt.Errorf("ClipNorm is %v: want at least 0", c.ClipNorm)
	case c.AtEndOfData < WaitForAll || c.AtEndOfData > EndTogether:
		return fmt.Errorf("AtEndOfData is %d: want WaitForAll, JoinOthers or EndTogether", c.AtEndOfData)
	case c.StartTimeout < time.Millisecond || c.PeerTimeout < 10*time.Millisecond:
		return fmt.Errorf("StartTimeout is %v and PeerTimeout is %v: want at least 1ms and 10ms", c.StartTimeout, c.PeerTimeout)
	case c.TuneAfterSteps < 1 || c.Report < 1:
		return fmt.Errorf("TuneAfterSteps is %d and Report is %d: want at least 1", c.TuneAfterSteps, c.Report)
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

// ReplicaCount returns how many of its virtual workers (equal parts of the
// batch) a worker computes in parallel, each with one BLAS thread.
// virtualWorkers is the worker's number of virtual workers, onHost the number
// of workers on its host.
func (c *Effective) ReplicaCount(virtualWorkers, onHost int) int {
	if c.ParallelReplicas > 0 {
		return min(c.ParallelReplicas, virtualWorkers)
	}
	return max(1, min(virtualWorkers, runtime.GOMAXPROCS(0)/max(onHost, 1)))
}

// Exact reports whether the user wants bit-identical results on all hosts,
// with --virtual-workers or --digest.
func (c *Effective) Exact() bool { return c.VirtualWorkers > 0 || c.Digest }

// maxVirtualWorkers is the maximum number of virtual workers of a job; package
// layout has the same limit.
const maxVirtualWorkers = 1 << 16

// CountVirtual returns the number of virtual workers (equal parts of a batch)
// of a job. workers is the present number of workers, first the number at the
// start of the job.
func (c *Effective) CountVirtual(workers, first int) (int, error) {
	if c.VirtualWorkers > maxVirtualWorkers || c.Replicas > maxVirtualWorkers || c.Accumulate > maxVirtualWorkers || workers*c.Replicas*c.Accumulate > maxVirtualWorkers {
		return 0, fmt.Errorf("--virtual-workers %d, --replicas %d, --accumulate %d with %s: at most %d virtual workers are possible",
			c.VirtualWorkers, c.Replicas, c.Accumulate, plural.Count(workers, "worker"), maxVirtualWorkers)
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

// Rows returns the number of rows that each virtual worker (equal part of a
// batch) gets of the global batch. virtual is the number of virtual workers.
// If ShardBatch is set, Rows also sets GlobalBatch.
func (c *Effective) Rows(virtual int) (int, error) {
	if c.ShardBatch > 0 {
		c.GlobalBatch = c.ShardBatch * virtual
	}
	if c.GlobalBatch == 0 {
		return 0, HintError{"the batch size is not known", "give trainer.Config{GlobalBatch: rows} to Parallelize, or ShardBatch"}
	}
	return Rows(c.GlobalBatch, virtual)
}

// Rows returns the number of rows per virtual worker. virtual is the number of
// virtual workers, batch the number of rows of the global batch.
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

// rowsHelp returns a hint for a batch that is not a multiple of virtual, the
// number of virtual workers. It names the next larger multiple, and a number
// of virtual workers that divides batch.
func rowsHelp(batch, virtual int) string {
	help := fmt.Sprintf("use a batch of %d rows (GlobalBatch, or the program's --batch-size)", (batch+virtual-1)/virtual*virtual)
	for n := virtual; n <= batch; n++ {
		if batch%n == 0 {
			return fmt.Sprintf("%s, or --virtual-workers %d", help, n)
		}
	}
	return help + ", or fewer workers"
}

// HintError is an error with a hint about what to change.
type HintError struct{ Text, Help string }

func (e HintError) Error() string { return e.Text }

// Hint returns the text to print after "hint: ".
func (e HintError) Hint() string { return e.Help }

// Mode returns the synchronisation mode of --sync. The result is the mode sync
// if the only task is one worker, because it has no other task to wait for.
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

// Suits returns an error if the configuration does not fit the number of
// workers and servers. It does not need the model, so the user sees the error
// before the program reads its data.
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

// serverless returns the error for a job that needs a parameter server and has
// none: it was launched with --ps none, or not launched by plx. loose is true
// if the workers do not wait for each other, because then workers cannot hold
// variables. chosen is true if the user set --arch ps; the hint then also
// suggests --arch allreduce.
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
