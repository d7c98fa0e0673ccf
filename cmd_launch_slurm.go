package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/slurm"
	"github.com/plx-run/plx/launcher/submit"
	"github.com/plx-run/plx/logs"
)

// submitFlags returns the flags that decide how plx launch submits itself to
// Slurm.
func submitFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "slurm", Usage: "submit this launch to Slurm with sbatch and attach to it; within a Slurm allocation, launch there"},
		&cli.StringFlag{Name: "partition", Usage: "with --slurm: `PARTITION` of Slurm, or several with commas"},
		&cli.StringFlag{Name: "nodes", Usage: "with --slurm: `NUMBER` of nodes"},
		&cli.StringFlag{Name: "gpus", Usage: "with --slurm: `NUMBER` of GPUs on all nodes together"},
		&cli.StringSliceFlag{Name: "sbatch-option", Usage: "with --slurm: one more `OPTION` of sbatch, such as --time=1:00:00; repeatable"},
	}
}

// submit submits this launch to Slurm as a batch job.
func (c *command) submit(ctx *cli.Context) error {
	cfg, err := c.settings(ctx, hosts.Reach{})
	if err != nil {
		return err
	}
	if cfg.Detach && (cfg.Grep != nil || len(cfg.ShowTasks) > 0) {
		return exit.Mistake(errors.New("--grep, --task and --rank need an attached job, and --detach was given"), "plx logs -f --grep RE")
	}
	if cfg.JSON {
		return exit.Mistake(errors.New("--json and --slurm exclude each other: the launch runs on a node, and its events with it"), "plx logs -f --json, once it is submitted")
	}
	later := cfg
	later.Detach, later.Grep, later.ShowTasks = false, nil, nil
	environ, err := later.Check()
	if err != nil {
		return err
	}
	s := submit.Config{Terminal: cfg.Terminal, Name: cfg.Name, Program: cfg.Program, Words: scriptFlags(ctx), Args: ctx.Args().Slice(), Environ: environ,
		Detach: cfg.Detach, DryRun: cfg.DryRun, CheckpointTimeout: cfg.CheckpointTimeout, Finish: cfg.Fetch != "" || cfg.LogDir != "", Shown: logs.Options{Grep: cfg.Grep, Verbose: cfg.Verbose, Timestamps: cfg.Timestamps, NoPrefix: cfg.NoPrefix, Only: cfg.ShowTasks}}
	for _, flag := range []string{"partition", "nodes", "gpus"} {
		if value := ctx.String(flag); value != "" {
			s.Options = append(s.Options, "--"+flag+"="+value)
		}
	}
	s.Options = append(s.Options, ctx.StringSlice("sbatch-option")...)
	warnOfFlags(cfg)
	signals, stop := c.signals()
	defer stop()
	c.code, err = submit.Run(context.Background(), s, signals)
	return err
}

// notInScript lists the flags that are not copied into the batch script for
// Slurm. Some of them are for the plx process that submits the script. The
// others choose hosts, but Slurm chooses the hosts of the script.
var notInScript = []string{"slurm", "partition", "nodes", "gpus", "sbatch-option", "detach", "dry-run", "color", "grep", "task", "rank", "verbose",
	"hosts", "host", "via", "local", "no-slurm", "env", "env-file", "help"}

// mustSubmit reports whether this launch must be submitted to Slurm. Within a
// Slurm allocation it is false, because the launch runs there directly.
func mustSubmit(ctx *cli.Context) (bool, error) {
	asked := ctx.Bool("slurm")
	for _, flag := range []string{"partition", "nodes", "gpus", "sbatch-option"} {
		if !typed(ctx, flag) {
			continue
		}
		if !asked {
			without := ""
			if c, known := counterparts()[flag]; known {
				without = "without Slurm, " + c.here + "; with it, "
			}
			return false, exit.Mistake(fmt.Errorf("--%s is for a job that --slurm submits", flag), "%splx launch --slurm --%s VALUE ./train", without, flag)
		}
		if job, _ := slurm.Current(os.Getenv); job != nil {
			return false, exit.Mistake(fmt.Errorf("--%s is for a job that --slurm submits, and plx runs in job %s of Slurm", flag, job.ID), "leave it out to launch in that job; unset SLURM_JOB_ID submits another")
		}
	}
	if !asked || os.Getenv(slurm.SubmissionVariable) != "" {
		return false, nil
	}
	for _, flag := range []string{"hosts", "host", "via", "local", "no-slurm"} {
		if typed(ctx, flag) && !typed(ctx, "slurm") {
			return false, nil // The default for --slurm comes from the user's configuration, and the command line overrides it.
		}
		if typed(ctx, flag) {
			return false, exit.Mistake(fmt.Errorf("--slurm and --%s exclude each other: Slurm chooses the hosts", flag), "leave one of them out; --sbatch-option --nodelist=NAMES names nodes")
		}
	}
	job, err := slurm.Current(os.Getenv)
	return job == nil && err == nil, err
}

// scriptFlags returns the flags of this plx launch that the plx command in
// Slurm's batch script repeats.
func scriptFlags(ctx *cli.Context) (all []string) {
	add := func(name string, value any) { all = append(all, fmt.Sprintf("%s=%v", dashed(name), value)) }
	for _, f := range ctx.Command.Flags {
		name := longName(f)
		if !ctx.IsSet(name) || slices.Contains(notInScript, name) {
			continue
		}
		switch f.(type) {
		case *cli.StringSliceFlag:
			for _, value := range ctx.StringSlice(name) {
				add(name, value)
			}
		case *cli.IntSliceFlag:
			for _, value := range ctx.IntSlice(name) {
				add(name, value)
			}
		default:
			add(name, ctx.Value(name))
		}
	}
	return all
}

// nameSlurmJob names a job that is launched in a batch script of Slurm. If Slurm
// requeues the script, the job finds its checkpoints by this name. A job
// submitted with --slurm uses the id of its submission.
func nameSlurmJob(job *slurm.Job, cfg *launcher.Config) {
	if cfg.Submission = os.Getenv(slurm.SubmissionVariable); cfg.Submission != "" {
		os.Unsetenv(slurm.SubmissionVariable) // tasks must not inherit the variable, because they may run plx themselves
		cfg.Detach, cfg.DryRun = false, false // Defaults for --detach and --dry-run concern the plx process that submits the script, not the launch within the script.
		if cfg.Resume == "" {
			cfg.Name = cmp.Or(cfg.Name, cfg.Submission)
		}
	}
	if cfg.Name == "" && cfg.Resume == "" {
		cfg.Name = job.Name(append([]string{cfg.Program}, cfg.Args...))
	}
	if cfg.Detach && job.Batch {
		console.NewPrinter(cfg.Terminal).Printf("note: --detach in a batch script of Slurm: the job ends with the script, unless that waits with plx attach")
	}
}
