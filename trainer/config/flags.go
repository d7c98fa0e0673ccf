package config

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/plx-run/plx/trainer/cluster"
)

func (c *Effective) define(f *flag.FlagSet) {
	f.StringVar(&c.Arch, "arch", c.Arch, "where variables are held: `ps|allreduce|hybrid|auto` (default hybrid: sparse ones on servers, dense ones all-reduced; ps if --sync needs it; auto: as hybrid, until it is measured which is less to send)")
	f.StringVar(&c.Sync, "sync", c.Sync, "how far workers may drift apart: `sync|async|ssp:K|group:G|backup:B` (default sync)")
	f.IntVar(&c.VirtualWorkers, "virtual-workers", c.VirtualWorkers, "cut each batch into `V` equal parts, one per virtual worker: the same bits for any number of workers up to V (default one per replica)")
	f.IntVar(&c.Replicas, "replicas", c.Replicas, "replicas `R` that one worker drives: the same bits as R workers")
	f.IntVar(&c.Accumulate, "accumulate", c.Accumulate, "add the gradients of `N` batches per replica in one step")
	f.IntVar(&c.ParallelReplicas, "parallel-replicas", c.ParallelReplicas, "compute `L` replicas side by side, one BLAS thread each (default as the host's cores allow)")
	f.StringVar(&c.Device, "device", c.Device, "what workers compute on: `auto|gpu|cpu` (auto: the GPU that the worker was given, or the CPU if it was given none; gpu: always a GPU, and every operation must have a kernel)")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "`number` that first values, shuffling and dropout follow from")
	f.BoolVar(&c.Digest, "digest", c.Digest, "the chief prints a hash of all variables at the end")
	f.IntVar(&c.StopAtStep, "stop-at-step", c.StopAtStep, "end after `N` steps (default: when the program does)")
	f.IntVar(&c.CheckParameters, "check-parameters", c.CheckParameters, "compare all variables of all workers every `N` steps (default never)")
	f.BoolVar(&c.CheckNumerics, "check-numerics", c.CheckNumerics, "look for NaN and Inf in every gradient; the loss is always checked")
	f.IntVar(&c.BucketBytes, "bucket-bytes", c.BucketBytes, "`bytes` of gradients that travel together in an all-reduce")
	f.IntVar(&c.PartitionBytes, "partition-bytes", c.PartitionBytes, "`bytes` above which a variable is cut over servers")
	f.IntVar(&c.Partitions, "partitions", c.Partitions, "cut tables that have a partitioner in `P` partitions (default: as many as are fastest)")
	f.IntVar(&c.MinPartitions, "min-partitions", c.MinPartitions, "cut tables that have a partitioner in at least `P` partitions (default: as the partitioner says)")
	f.IntVar(&c.MaxPartitions, "max-partitions", c.MaxPartitions, "search up to `P` partitions (default 16 for each task that holds tables)")
	f.Var(negated{&c.NoSearchPartitions}, "search-partitions", "find the number of partitions for which steps are fastest, while training goes on")
	f.StringVar(&c.CombineRows, "combine-rows", c.CombineRows, "put gradients of a table's rows together as `loss|add|average`: as the loss is, as a sum, or as a mean over the virtual workers; for tables that do not say it themselves")
	f.Var(negated{&c.NoLocalAggregation}, "local-aggregation", "workers of a host add their gradients before they are sent to servers")
	f.Var(negated{&c.NoFindSparse}, "find-sparse", "make tables of variables of which the model only looks up rows, so that only these rows travel and are updated")
	f.StringVar(&c.Balance, "balance", c.Balance, "cut and place tables by `load|bytes`: what was measured to travel, or their size")
	f.Var(negated{&c.NoPrefetch}, "prefetch", "request rows of embeddings a step ahead, if the program says which")
	f.StringVar(&c.SummaryDir, "summary-dir", c.SummaryDir, "the chief writes TensorBoard event files and JSON lines to `folder`")
	f.IntVar(&c.SummaryEverySteps, "summary-every-steps", c.SummaryEverySteps, "write a summary every `N` steps, and after the last one")
	f.StringVar(&c.ExportGraph, "export-graph", c.ExportGraph, "the chief writes the model's graph to `file`: DOT, JSON, or both if its name ends in neither")
	f.StringVar(&c.InitFrom, "init-from", c.InitFrom, "begin with the values of a checkpoint or safetensors file at `path` on the chief's host, for the variables of the same name, type and shape")
	f.StringVar(&c.CheckpointDir, "ckpt-dir", c.CheckpointDir, "`folder` on every host for checkpoints, below ~/.plx/ckpt/<job name> unless it is absolute; training resumes from the newest one there")
	f.IntVar(&c.CheckpointEverySteps, "ckpt-every-steps", c.CheckpointEverySteps, "make a checkpoint every `N` steps, and not by time")
	f.IntVar(&c.CheckpointEverySecs, "ckpt-every-secs", c.CheckpointEverySecs, "make a checkpoint every `N` seconds, after the step under way (default 600, unless --ckpt-every-steps is given)")
	f.IntVar(&c.CheckpointKeep, "ckpt-keep", c.CheckpointKeep, "keep the last `N` checkpoints")
	f.StringVar(&c.ProfileSteps, "profile-steps", c.ProfileSteps, "write a timeline of `STEPS`: numbers and ranges A:B, A included, B not, such as 5,10:12")
	f.StringVar(&c.ProfileWorkers, "profile-workers", c.ProfileWorkers, "write it on `WORKERS` only, such as 0,4:8 (default on all)")
	f.StringVar(&c.ProfileDir, "profile-dir", c.ProfileDir, "`folder` for the timelines, one file per worker")
}

// negated is the value of a boolean flag that is true while *field is false,
// such as --prefetch for NoPrefetch.
type negated struct{ field *bool }

func (n negated) String() string { return strconv.FormatBool(n.field != nil && !*n.field) }

func (n negated) Set(text string) error {
	on, err := strconv.ParseBool(text)
	*n.field = !on
	return err
}

// IsBoolFlag lets the user write --name instead of --name=true, see package
// flag.
func (negated) IsBoolFlag() bool { return true }

// setFlag is a flag that the user has set on the command line.
type setFlag struct{ name, value string }

// flags returns a flag set that contains only the trainer's flags.
func (c *Effective) flags() *flag.FlagSet {
	f := flag.NewFlagSet("", flag.ContinueOnError)
	c.define(f)
	return f
}

// register adds the trainer's flags to f, with the values of c as defaults. It
// returns an error if the program has already defined a flag of the same name.
func (c *Effective) register(f *flag.FlagSet) (err error) {
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

// usage prints the program's own flags, then the trainer's flags in a separate
// list.
func usage(f *flag.FlagSet) {
	ours := new(Effective).flags()
	list := func(title string, trainers bool) {
		listed := flag.NewFlagSet("", flag.ContinueOnError)
		f.VisitAll(func(x *flag.Flag) {
			if own := ours.Lookup(x.Name) != nil; own == trainers {
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

// ParseCommandLine parses the process's arguments: the program's own flags,
// and the trainer's flags, which it stores in c. If the program has already
// called flag.Parse, there are no trainer flags. After a syntax error in a
// flag, the process exits with status 2, as in package flag.
//
// The parameter task is the name of the task, or "" if plx did not launch the
// program. Only the chief (worker 0) prints the usage text, because all tasks
// of a job have the same arguments.
func (c *Effective) ParseCommandLine(task string) error {
	return c.parse(flag.CommandLine, os.Args[1:], task == "" || task == cluster.Chief.String())
}

func isHelp(argument string) bool {
	return slices.Contains([]string{"-h", "--h", "-help", "--help"}, argument)
}

func (c *Effective) parse(f *flag.FlagSet, arguments []string, help bool) error {
	if f.Parsed() {
		return c.Check()
	}
	if err := c.register(f); err != nil {
		return err
	}
	f.Usage = func() {
		switch {
		case !help:
		case slices.ContainsFunc(arguments, isHelp):
			usage(f)
		default: // after a syntax error, the whole list of flags would scroll the error message off the screen
			fmt.Fprintf(f.Output(), "%s -h lists all flags\n", f.Name())
		}
	}
	if err := f.Parse(arguments); err != nil {
		return err
	}
	ours := c.flags()
	f.Visit(func(x *flag.Flag) {
		if ours.Lookup(x.Name) != nil {
			c.setFlags = append(c.setFlags, setFlag{x.Name, x.Value.String()})
		}
	})
	return c.Check()
}
