package trainer

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/plx-run/plx/trainer/cluster"
)

// register adds the trainer's flags to f, with c's values as defaults. A
// name that the program has taken already is an error.
func (c *config) register(f *flag.FlagSet) error {
	own := flag.NewFlagSet("", flag.ContinueOnError)
	c.define(own)
	var err error
	own.VisitAll(func(x *flag.Flag) {
		if f.Lookup(x.Name) != nil && err == nil {
			err = fmt.Errorf("flag --%s is the trainer's: give the program's another name", x.Name)
			return
		}
		if err == nil {
			f.Var(x.Value, x.Name, x.Usage)
		}
	})
	return err
}

func (c *config) define(f *flag.FlagSet) {
	f.StringVar(&c.arch, "arch", c.arch, "where variables live: `ps|allreduce|hybrid|auto` (default hybrid: sparse ones on servers, dense ones all-reduced; ps where --sync needs it; auto: as hybrid, until it is measured which is less to send)")
	f.StringVar(&c.sync, "sync", c.sync, "how far workers may drift apart: `sync|async|ssp:K|group:G|backup:B` (default sync)")
	f.IntVar(&c.virtual, "virtual-workers", c.virtual, "cut each batch into `V` data shards: the same bits for any number of workers up to V (default one per replica)")
	f.IntVar(&c.replicas, "replicas", c.replicas, "replicas `R` that one worker drives: the same bits as R workers")
	f.IntVar(&c.accumulate, "accumulate", c.accumulate, "add the gradients of `N` batches per replica in one step")
	f.IntVar(&c.lanes, "lanes", c.lanes, "replicas `L` computed side by side, one BLAS thread each (default as the host's cores allow)")
	f.Uint64Var(&c.seed, "seed", c.seed, "`number` that first values, shuffling and dropout follow from")
	f.BoolVar(&c.digest, "digest", c.digest, "the chief prints a hash of all variables at the end")
	f.IntVar(&c.stopAt, "stop-at-step", c.stopAt, "end after `N` steps (default: when the program does)")
	f.IntVar(&c.checkParameters, "check-parameters", c.checkParameters, "compare all variables of all workers every `N` steps (default never)")
	f.BoolVar(&c.checkNumerics, "check-numerics", c.checkNumerics, "look for NaN and Inf in every gradient; the loss is always checked")
	f.IntVar(&c.bucket, "bucket-bytes", c.bucket, "`bytes` of gradients that travel together in an all-reduce")
	f.IntVar(&c.partition, "partition-bytes", c.partition, "`bytes` above which a variable is cut over servers")
	f.IntVar(&c.partitions, "partitions", c.partitions, "cut tables that have a partitioner in `P` partitions (default: as many as are fastest)")
	f.BoolVar(&c.search, "search-partitions", c.search, "find the number of partitions for which steps are fastest, while training goes on")
	f.StringVar(&c.balance, "balance", c.balance, "cut and place tables by `load|bytes`: what was measured to travel, or their size")
	f.BoolVar(&c.prefetch, "prefetch", c.prefetch, "ask for rows of embeddings a step ahead, where the program says which")
	f.StringVar(&c.summaries, "summary-dir", c.summaries, "the chief writes TensorBoard event files and JSON lines to `folder`")
	f.StringVar(&c.exportGraph, "export-graph", c.exportGraph, "the chief writes the model's graph to `file`: DOT, JSON, or both where its name ends in neither")
	f.StringVar(&c.ckptDir, "ckpt-dir", c.ckptDir, "`folder` on every host for checkpoints, below ~/.plx/ckpt/<job name> where it is relative; training goes on from the newest one there")
	f.IntVar(&c.ckptSteps, "ckpt-every-steps", c.ckptSteps, "make a checkpoint every `N` steps (default only at the end)")
	f.IntVar(&c.ckptSecs, "ckpt-every-secs", c.ckptSecs, "make a checkpoint every `N` seconds, behind the step under way")
	f.IntVar(&c.ckptKeep, "ckpt-keep", c.ckptKeep, "keep the last `N` checkpoints")
	f.BoolVar(&c.fresh, "fresh-process", c.fresh, "start a process anew for every generation of a job, even where only another task was lost")
	f.StringVar(&c.profileSteps, "profile-steps", c.profileSteps, "write a timeline of steps `A:B`, A included, B not")
	f.StringVar(&c.profileDir, "profile-dir", c.profileDir, "`folder` for the timelines, one file per worker, and for the plot of a search for partitions")
}

// trainerFlags are the names of the trainer's flags.
func trainerFlags() []string {
	var names []string
	f := flag.NewFlagSet("", flag.ContinueOnError)
	c := defaults()
	c.define(f)
	f.VisitAll(func(x *flag.Flag) { names = append(names, x.Name) })
	return names
}

// usage lists the program's flags, and apart from them the trainer's.
func usage(f *flag.FlagSet) {
	out, names := f.Output(), trainerFlags()
	program, trainers := flag.NewFlagSet("", flag.ContinueOnError), flag.NewFlagSet("", flag.ContinueOnError)
	f.VisitAll(func(x *flag.Flag) {
		to := program
		if slices.Contains(names, x.Name) {
			to = trainers
		}
		to.Var(x.Value, x.Name, x.Usage)
		to.Lookup(x.Name).DefValue = x.DefValue
	})
	fmt.Fprintf(out, "usage: %s [flags]\n", f.Name())
	list(out, "", program)
	list(out, "\nflags of plx's trainer:\n", trainers)
}

func list(out io.Writer, title string, f *flag.FlagSet) {
	fmt.Fprint(out, title)
	f.SetOutput(out)
	f.PrintDefaults()
}

// parse reads the command line into c, the program's flags and the trainer's.
// Where the program has parsed it already, the trainer has no flags.
func (c *config) parse(f *flag.FlagSet, arguments []string) error {
	if f.Parsed() {
		return c.check()
	}
	if err := c.register(f); err != nil {
		return err
	}
	f.Usage = func() {
		if !c.curt {
			usage(f)
		}
	}
	if err := f.Parse(arguments); err != nil {
		return err
	}
	return c.check()
}

// parseCommandLine is parse on what the process was given. A mistake in a
// flag's form ends the process with 2, as package flag has it.
//
// Of the tasks of a job only the chief says how to use the program: all of
// them were given the same.
func (c *config) parseCommandLine(task string) error {
	c.curt = task != "" && task != cluster.Chief.String()
	return c.parse(flag.CommandLine, os.Args[1:])
}
