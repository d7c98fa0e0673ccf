package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/slurm"
)

// targetFlags are the flags of commands that work on hosts, or on the nodes of the allocation
// of Slurm that plx runs in.
func targetFlags(more ...cli.Flag) []cli.Flag {
	all := reachFlags()
	return slices.Concat(all, group("Hosts", &cli.BoolFlag{Name: "no-slurm", Usage: "leave out the allocation of Slurm that plx runs in"}), more)
}

// submitFlags tell how plx launch submits itself to Slurm.
func submitFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "slurm", Usage: "submit this launch to Slurm by sbatch, and attach to it; in an allocation of Slurm, launch there"},
		&cli.StringFlag{Name: "partition", Usage: "with --slurm: `PARTITION` of Slurm, or several with commas"},
		&cli.StringFlag{Name: "nodes", Usage: "with --slurm: `NUMBER` of nodes"},
		&cli.StringFlag{Name: "gpus", Usage: "with --slurm: `NUMBER` of GPUs on all nodes together"},
		&cli.StringSliceFlag{Name: "sbatch-option", Usage: "with --slurm: one more `OPTION` of sbatch, such as --time=1:00:00; repeatable"},
	}
}

// submitted are the flags that plx's script for sbatch does not have: the plx of the login node
// heeds them, or they name other hosts.
var submitted = []string{"slurm", "partition", "nodes", "gpus", "sbatch-option", "detach", "dry-run", "color", "grep", "task", "rank", "verbose",
	"hosts", "host", "via", "local", "no-slurm", "env", "env-file", "help"}

// submits reports whether the launch is to be submitted. In an allocation it is not.
func submits(ctx *cli.Context) (bool, error) {
	asked := ctx.Bool("slurm")
	for _, flag := range []string{"partition", "nodes", "gpus", "sbatch-option"} {
		if !typed(ctx, flag) {
			continue
		}
		if !asked {
			without := ""
			if c, known := counterparts[flag]; known {
				without = "without Slurm, " + c.here + "; with it, "
			}
			return false, exit.Mistake(fmt.Errorf("--%s is for a job that --slurm submits", flag), "%splx launch --slurm --%s VALUE ./train", without, flag)
		}
		if job, _ := slurm.Current(os.Getenv); job != nil {
			return false, exit.Mistake(fmt.Errorf("--%s is for a job that --slurm submits, and plx runs in job %s of Slurm", flag, job.ID), "leave it out to launch in that job; unset SLURM_JOB_ID submits another")
		}
	}
	if !asked || os.Getenv(slurm.Variable) != "" {
		return false, nil
	}
	for _, flag := range []string{"hosts", "host", "via", "local", "no-slurm"} {
		if typed(ctx, flag) && !typed(ctx, "slurm") {
			return false, nil // --slurm is a default of the user's
		}
		if typed(ctx, flag) {
			return false, exit.Mistake(fmt.Errorf("--slurm and --%s exclude each other: Slurm chooses the hosts", flag), "leave one of them out; --sbatch-option --nodelist=NAMES names nodes")
		}
	}
	job, err := slurm.Current(os.Getenv)
	return job == nil && err == nil, err
}

// scriptFlags are the flags of a launch as the script for sbatch has them.
func scriptFlags(ctx *cli.Context) (all []string) {
	add := func(name string, value any) { all = append(all, fmt.Sprintf("%s=%v", dashed(name), value)) }
	for _, f := range ctx.Command.Flags {
		name := longName(f)
		if !ctx.IsSet(name) || slices.Contains(submitted, name) {
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

// target reads the flags of targetFlags. If no host is named and plx runs in an allocation of
// Slurm, its nodes are the hosts; the job is nil otherwise. A default host does not count.
func target(ctx *cli.Context) (hosts.Reach, *slurm.Job, error) {
	r, job, err := meant(ctx)
	if err == nil {
		r.ProbeTime, err = probeTime(ctx)
	}
	return r, job, err
}

// meant is target without the time for probes.
func meant(ctx *cli.Context) (hosts.Reach, *slurm.Job, error) {
	named := slices.ContainsFunc([]string{"hosts", "host", "via", "local"}, func(flag string) bool { return typed(ctx, flag) })
	if named || ctx.Bool("no-slurm") {
		r, err := reach(ctx)
		return r, nil, err
	}
	job, err := slurm.Current(os.Getenv)
	if err != nil {
		return hosts.Reach{}, nil, err
	}
	if job == nil {
		r, err := reach(ctx)
		return r, nil, err
	}
	r := hosts.Reach{Slurm: job.Run}
	if ctx.Bool("dry-run") {
		r.Hosts, err = job.Known(context.Background())
	} else {
		r.Hosts, err = job.Hosts(context.Background())
	}
	if err == nil {
		r.Hosts, err = choose(ctx, r.Hosts)
	}
	return r, job, err
}
