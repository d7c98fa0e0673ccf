package config

import (
	"flag"
	"fmt"
	"os"

	"github.com/plx-run/plx/trainer/cluster"
)

// hidden is the usage of a flag that is accepted and that --help does not list.
const hidden = ""

func (c *Config) define(f *flag.FlagSet) {
	f.StringVar(&c.Arch, "arch", c.Arch, "where variables are held: `ps|allreduce|hybrid|auto` (default hybrid: sparse ones on servers, dense ones all-reduced; ps if --sync needs it; auto: as hybrid, until it is measured which is less to send)")
	f.StringVar(&c.Sync, "sync", c.Sync, "how far workers may drift apart: `sync|async|ssp:K|group:G|backup:B` (default sync)")
	f.IntVar(&c.VirtualWorkers, "virtual-workers", c.VirtualWorkers, "cut each batch into `V` equal parts, one per virtual worker: the same bits for any number of workers up to V (default one per replica)")
	f.IntVar(&c.Replicas, "replicas", c.Replicas, "replicas `R` that one worker drives: the same bits as R workers")
	f.IntVar(&c.Accumulate, "accumulate", c.Accumulate, "add the gradients of `N` batches per replica in one step")
	f.IntVar(&c.Parallel, "parallel-replicas", c.Parallel, "compute `L` replicas side by side, one BLAS thread each (default as the host's cores allow)")
	f.IntVar(&c.Parallel, "lanes", c.Parallel, hidden) // the former name
	f.Uint64Var(&c.Seed, "seed", c.Seed, "`number` that first values, shuffling and dropout follow from")
	f.BoolVar(&c.Digest, "digest", c.Digest, "the chief prints a hash of all variables at the end")
	f.IntVar(&c.StopAt, "stop-at-step", c.StopAt, "end after `N` steps (default: when the program does)")
	f.IntVar(&c.CheckParameters, "check-parameters", c.CheckParameters, "compare all variables of all workers every `N` steps (default never)")
	f.BoolVar(&c.CheckNumerics, "check-numerics", c.CheckNumerics, "look for NaN and Inf in every gradient; the loss is always checked")
	f.IntVar(&c.BucketBytes, "bucket-bytes", c.BucketBytes, "`bytes` of gradients that travel together in an all-reduce")
	f.IntVar(&c.PartitionBytes, "partition-bytes", c.PartitionBytes, "`bytes` above which a variable is cut over servers")
	f.IntVar(&c.Partitions, "partitions", c.Partitions, "cut tables that have a partitioner in `P` partitions (default: as many as are fastest)")
	f.BoolVar(&c.SearchPartitions, "search-partitions", c.SearchPartitions, "find the number of partitions for which steps are fastest, while training goes on")
	f.StringVar(&c.Balance, "balance", c.Balance, "cut and place tables by `load|bytes`: what was measured to travel, or their size")
	f.BoolVar(&c.Prefetch, "prefetch", c.Prefetch, "request rows of embeddings a step ahead, if the program says which")
	f.StringVar(&c.SummaryDir, "summary-dir", c.SummaryDir, "the chief writes TensorBoard event files and JSON lines to `folder`")
	f.StringVar(&c.ExportGraph, "export-graph", c.ExportGraph, "the chief writes the model's graph to `file`: DOT, JSON, or both if its name ends in neither")
	f.StringVar(&c.CheckpointDir, "ckpt-dir", c.CheckpointDir, "`folder` on every host for checkpoints, below ~/.plx/ckpt/<job name> unless it is absolute; training resumes from the newest one there")
	f.IntVar(&c.CheckpointSteps, "ckpt-every-steps", c.CheckpointSteps, "make a checkpoint every `N` steps (default only at the end)")
	f.IntVar(&c.CheckpointSecs, "ckpt-every-secs", c.CheckpointSecs, "make a checkpoint every `N` seconds, after the step under way")
	f.IntVar(&c.CheckpointKeep, "ckpt-keep", c.CheckpointKeep, "keep the last `N` checkpoints")
	f.StringVar(&c.ProfileSteps, "profile-steps", c.ProfileSteps, "write a timeline of steps `A:B`, A included, B not")
	f.StringVar(&c.ProfileDir, "profile-dir", c.ProfileDir, "`folder` for the timelines, one file per worker, and for the plot of a search for partitions")
	f.Bool("fresh-process", false, hidden) // without effect
}

// flags is a set of the trainer's flags alone.
func (c *Config) flags() *flag.FlagSet {
	f := flag.NewFlagSet("", flag.ContinueOnError)
	c.define(f)
	return f
}

// register adds the trainer's flags to f, with c's values as defaults. A name
// that the program has taken already is an error.
func (c *Config) register(f *flag.FlagSet) (err error) {
	c.flags().VisitAll(func(x *flag.Flag) {
		if f.Lookup(x.Name) != nil && err == nil {
			err = fmt.Errorf("flag --%s is the trainer's: give the program's another name", x.Name)
		}
		if err == nil {
			f.Var(x.Value, x.Name, x.Usage)
		}
	})
	return err
}

// usage lists the program's flags, and apart from them the trainer's.
func usage(f *flag.FlagSet) {
	ours := new(Config).flags()
	list := func(title string, trainers bool) {
		listed := flag.NewFlagSet("", flag.ContinueOnError)
		f.VisitAll(func(x *flag.Flag) {
			if own := ours.Lookup(x.Name) != nil; own == trainers && !(own && x.Usage == hidden) {
				listed.Var(x.Value, x.Name, x.Usage)
				listed.Lookup(x.Name).DefValue = x.DefValue
			}
		})
		fmt.Fprint(f.Output(), title)
		listed.SetOutput(f.Output())
		listed.PrintDefaults()
	}
	list("usage: "+f.Name()+" [flags]\n", false)
	list("\nflags of plx's trainer:\n", true)
}

// ParseCommandLine reads the process's arguments into c: the program's flags and
// the trainer's. If the program has parsed them already, the trainer has no
// flags. A mistake in a flag's form ends the process with 2, as package flag
// has it.
//
// task is the name of the task, "" without a launcher. Of the tasks of a job only
// the chief prints how to use the program: all of them got the same arguments.
func (c *Config) ParseCommandLine(task string) error {
	return c.parse(flag.CommandLine, os.Args[1:], task == "" || task == cluster.Chief.String())
}

func (c *Config) parse(f *flag.FlagSet, arguments []string, help bool) error {
	if f.Parsed() {
		return c.Check()
	}
	if err := c.register(f); err != nil {
		return err
	}
	f.Usage = func() {
		if help {
			usage(f)
		}
	}
	if err := f.Parse(arguments); err != nil {
		return err
	}
	return c.Check()
}
