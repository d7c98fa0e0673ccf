package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/doctor"
	"github.com/plx-run/plx/launcher/exec"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/logs"
)

func (c *command) probeCommand() *cli.Command {
	return &cli.Command{
		Name: "probe", Usage: "show the hosts: reachable, GPUs, who uses them, cores, memory",
		Flags:  targetFlags(jsonFlag(), probeFlag()),
		Action: c.probe,
	}
}

func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "write JSON"} }

func (c *command) probe(ctx *cli.Context) error {
	if err := noArguments(ctx); err != nil {
		return err
	}
	r, _, err := target(ctx)
	if err != nil {
		return err
	}
	if len(r.Hosts) == 0 {
		r.LocalHosts, r.LocalWorkers = 1, 1
	}
	t, err := c.terminal(ctx)
	if err != nil {
		return err
	}
	base, cancel := c.context()
	defer cancel()
	rows, err := hosts.Probe(base, r, t)
	if err != nil {
		return err
	}
	if ctx.Bool("json") {
		err = gpuprobe.JSON(c.stdout, rows)
	} else {
		err = hosts.PrintProbed(t, rows)
	}
	var hints []string
	for _, row := range rows {
		if row.Err != nil {
			c.code = exit.CodePlx // the output has the reason
			hints = append(hints, exit.Hint(row.Err))
		}
		err = errors.Join(err, row.Unmet)
	}
	slices.Sort(hints)
	for _, hint := range slices.Compact(hints) {
		if hint != "" {
			console.NewPrinter(t).Printf("hint: %s", hint)
		}
	}
	return err
}

func (c *command) doctorCommand() *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "find ahead what would fail in a launch on the hosts",
		Description: "It prints a line for each finding, with its remedy, and says the same of several hosts\n" +
			"once. An error is what a launch fails for; with a warning it works, and programs may\n" +
			"meet it later: docs/doctor.md lists what is checked. It starts no job and repairs\n" +
			"nothing. Like a launch it leaves plx's agent in ~/.plx on the hosts.\n\n" +
			"Exit status: 0 if there is no error, 125 if there is one, 2 for wrong flags.",
		Flags: targetFlags(jsonFlag(), probeFlag(),
			&cli.StringFlag{Name: "nic", Usage: "data is to go over network interface `NAME` of each host"},
			&cli.StringFlag{Name: "port-range", Usage: "data is to go over ports `LOW-HIGH` of the hosts"},
			&cli.BoolFlag{Name: "python", Usage: "each host must have python3"},
			&cli.StringSliceFlag{Name: "check-import", Usage: "python3 of each host must import `MODULES` (torch,numpy); of torch, compare its CUDA with the driver"},
			&cli.StringFlag{Name: "path", Usage: "`FOLDERS` to put before the hosts' PATH"}),
		Action: c.doctor,
	}
}

func (c *command) doctor(ctx *cli.Context) error {
	if err := noArguments(ctx); err != nil {
		return err
	}
	cfg := doctor.Config{Python: ctx.Bool("python"), CheckImport: ctx.StringSlice("check-import"), Path: ctx.String("path")}
	var err error
	if cfg.Reach, _, err = target(ctx); err != nil {
		return err
	}
	if cfg.Terminal, err = c.terminal(ctx); err != nil {
		return err
	}
	if cfg.Interface, err = nic(ctx); err != nil {
		return err
	}
	if cfg.PortLow, cfg.PortHigh, err = portRange(ctx.String("port-range")); err != nil {
		return err
	}
	base, cancel := c.context()
	defer cancel()
	d, err := doctor.Examine(base, cfg)
	if err != nil {
		return err
	}
	if d.Fails() {
		c.code = exit.CodePlx
	}
	if ctx.Bool("json") {
		return d.JSON(c.stdout)
	}
	return d.Print(c.stdout, cfg.Terminal.StdoutColour)
}

func (c *command) execCommand() *cli.Command {
	return &cli.Command{
		Name:      "exec",
		Usage:     "run a command on all hosts, and print equal outputs once",
		ArgsUsage: "[--] COMMAND [ARGS...]",
		Description: "COMMAND is one of the hosts. Its arguments are passed as they are, without a shell;\n" +
			"for a shell: plx exec --hosts FILE -- bash -c 'ls *.log | wc -l'. It runs in the home\n" +
			"folder with an empty stdin. What it leaves in the background ends with it, and all\n" +
			"ends with Ctrl-C. A host ends it too when it has not heard plx for --lease.\n" +
			"plx prints outputs after the last host has ended, equal ones once, and keeps the first\n" +
			"4 MiB of each stream of a host, 256 MiB in all. With --stream it prints each line at\n" +
			"once, after the name of its host.\n\n" +
			"--json writes an array with an object for each host: host, status, stdout, stderr,\n" +
			"and error in place of a status. Text that is not UTF-8 is in stdoutBase64 or\n" +
			"stderrBase64; stdoutCut and stderrCut count bytes that are left out.\n\n" +
			"Exit status: the largest of all hosts. A host that cannot be reached, or is lost,\n" +
			"counts with 125; one where --max-time ran out with 124; 126 and 127 as in a shell.\n" +
			"130 after Ctrl-C, 2 for wrong flags.",
		Flags: targetFlags(jsonFlag(),
			&cli.BoolFlag{Name: "stream", Usage: "print each line at once, after the name of its host"},
			&cli.StringSliceFlag{Name: "env", Usage: "give the command `NAME[=VALUE]`; repeatable"},
			&cli.StringSliceFlag{Name: "env-file", Usage: "give the command the variables of `FILE`; repeatable"},
			&cli.StringFlag{Name: "chdir", Usage: "`FOLDER` on the hosts to run in, instead of the home"},
			&cli.StringFlag{Name: "setup", Usage: "shell `LINE` to run before the command, such as 'source venv/bin/activate'"},
			&cli.StringFlag{Name: "path", Usage: "`FOLDERS` to put before the hosts' PATH"},
			&cli.DurationFlag{Name: "max-time", Usage: "end the command after `TIME`"},
			&cli.DurationFlag{Name: "lease", Value: jobs.DefaultLease, Usage: "a host ends the command `TIME` after it last heard plx"},
			&cli.DurationFlag{Name: "grace", Value: jobs.DefaultGrace, Usage: "`TIME` between asking the command to end and killing it"}),
		Action: c.exec,
	}
}

func (c *command) exec(ctx *cli.Context) error {
	cfg := exec.Config{Program: ctx.Args().First(), Args: ctx.Args().Tail(),
		Env: ctx.StringSlice("env"), EnvFiles: ctx.StringSlice("env-file"),
		Chdir: ctx.String("chdir"), Setup: ctx.String("setup"), Path: ctx.String("path"),
		MaxTime: ctx.Duration("max-time"), Lease: ctx.Duration("lease"), Grace: ctx.Duration("grace"), JSON: ctx.Bool("json"), Stream: ctx.Bool("stream")}
	var err error
	if cfg.Reach, _, err = target(ctx); err != nil {
		return err
	}
	if cfg.Terminal, err = c.terminal(ctx); err != nil {
		return err
	}
	signals, stop := c.signals()
	defer stop()
	c.code, err = exec.Run(context.Background(), cfg, signals)
	return err
}

func (c *command) logsCommand() *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "print a job's logs, while it runs or after", ArgsUsage: "[JOB]",
		Flags: reachFlags(jsonFlag(),
			&cli.BoolFlag{Name: "v", Aliases: []string{"verbose"}, Usage: "first print the plan of the launch"},
			&cli.BoolFlag{Name: "f", Aliases: []string{"follow"}, Usage: "follow the job until it ends"},
			taskFlags()[0], taskFlags()[1], stampsFlag(),
			&cli.IntFlag{Name: "tail", Value: -1, Usage: "only the last `N` lines of each task's stdout and of its stderr"},
			&cli.DurationFlag{Name: "since", Usage: "only lines of the last `TIME`, such as 10m"},
			&cli.StringFlag{Name: "grep", Usage: "only lines that match `RE`"}),
		Action: c.logs,
	}
}

// logs reads --host as the names of the hosts to show, not of the hosts to look on.
func (c *command) logs(ctx *cli.Context) error {
	cfg := jobs.LogsConfig{Follow: ctx.Bool("f"), Tasks: shownTasks(ctx), Tail: ctx.Int("tail"),
		Since: ctx.Duration("since"), JSON: ctx.Bool("json"), Plan: ctx.Bool("v"), Hosts: ctx.StringSlice("host"), Stamps: ctx.Bool("timestamps")}
	if err := oneJob(ctx); err != nil {
		return err
	}
	cfg.Job, cfg.OnHosts = ctx.Args().First(), typed(ctx, "hosts")
	var err error
	if cfg.Reach, err = fileReach(ctx); err != nil {
		return err
	}
	if cfg.Terminal, err = c.terminal(ctx); err != nil {
		return err
	}
	if cfg.Grep, err = pattern(ctx, "grep"); err != nil {
		return err
	}
	if cfg.Since < 0 {
		return exit.Mistake(fmt.Errorf("--since %s is in the future", cfg.Since), "--since %s for that much of the past", -cfg.Since)
	}
	base, cancel := c.context()
	defer cancel()
	return jobs.Logs(base, cfg)
}

// onJob makes an action of work on the job that the arguments name, after a check of
// the arguments. The first signal interrupts the work.
func (c *command) onJob(check func(*cli.Context) error, work func(ctx context.Context, q jobs.Query, flags *cli.Context) error) cli.ActionFunc {
	return func(flags *cli.Context) error {
		if err := check(flags); err != nil {
			return err
		}
		q, err := c.query(flags)
		if err != nil {
			return err
		}
		ctx, cancel := c.context()
		defer cancel()
		return work(ctx, q, flags)
	}
}

func (c *command) jobsCommand() *cli.Command {
	return &cli.Command{
		Name: "jobs", Usage: "list the jobs launched from here, or found on --hosts",
		Flags: reachFlags(jsonFlag()),
		Action: c.onJob(noArguments, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			return jobs.List(ctx, q, flags.Bool("json"))
		}),
	}
}

func (c *command) statusCommand() *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "show how a job ended, or what each task of a running job does", ArgsUsage: "[JOB]",
		Description: "Of each task of a running job it shows the step, and for how long nothing of the task\n" +
			"has moved: no output, no step, no bytes through sockets or files, no processor time.\n" +
			"Of a job that failed or hung it shows the part of each task: culprit, victim, torn\n" +
			"down. docs/launching.md lists the fields of --json.",
		Flags: reachFlags(jsonFlag()),
		Action: c.onJob(oneJob, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			return jobs.Status(ctx, q, flags.Bool("json"))
		}),
	}
}

func (c *command) stacksCommand() *cli.Command {
	return &cli.Command{
		Name: "stacks", Usage: "print where each task of a running job is, without harm to it", ArgsUsage: "[JOB]",
		Description: "Of each process it prints what its threads wait for, by the kernel's view; of Python\n" +
			"the stacks of its threads, and of plx's trainer those of its goroutines. Of a job that\n" +
			"was ended because it hung it prints what was written before: see docs/hangs.md.",
		Flags: reachFlags(),
		Action: c.onJob(oneJob, func(ctx context.Context, q jobs.Query, _ *cli.Context) error {
			return jobs.Stacks(ctx, q)
		}),
	}
}

func (c *command) attachCommand() *cli.Command {
	return &cli.Command{
		Name: "attach", Usage: "follow a running job and exit with its status", ArgsUsage: "[JOB]",
		Flags: reachFlags(append(taskFlags(), verboseFlag(), stampsFlag())...),
		Action: c.onJob(oneJob, func(ctx context.Context, q jobs.Query, flags *cli.Context) (err error) {
			c.code, err = jobs.Attach(ctx, q, logs.Options{Verbose: flags.Bool("v"), Timestamps: flags.Bool("timestamps"), Only: shownTasks(flags)})
			return err
		}),
	}
}

func (c *command) scaleCommand() *cli.Command {
	return &cli.Command{
		Name: "scale", Usage: "change the hosts of a running job", ArgsUsage: "[JOB]",
		Description: "--hosts names all hosts that the job will have: new hosts join, missing ones leave,\n" +
			"and the others keep their devices. The job saves a checkpoint and resumes from it,\n" +
			"so its program needs --ckpt-dir: see docs/elastic.md.",
		Flags: reachFlags(
			&cli.DurationFlag{Name: "checkpoint-timeout", Value: 5 * time.Minute, Usage: "keep the old hosts if nothing is saved within `TIME`"}),
		Action: c.onJob(oneJob, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			q.OnHosts = false
			if len(q.Reach.Hosts) == 0 {
				return exit.Mistake(errors.New("the hosts are missing"), "plx scale JOB --hosts FILE")
			}
			if flags.Duration("checkpoint-timeout") <= 0 {
				return exit.Mistake(errors.New("--checkpoint-timeout must be more than 0: it is the time that the checkpoint may take"), "--checkpoint-timeout 5m")
			}
			return jobs.Scale(ctx, jobs.ScaleConfig{Query: q, SaveTime: flags.Duration("checkpoint-timeout")})
		}),
	}
}

func (c *command) stopCommand() *cli.Command {
	return &cli.Command{
		Name: "stop", Usage: "end a job and wait until nothing of it is left", ArgsUsage: "[JOB]",
		Flags: reachFlags(
			&cli.BoolFlag{Name: "checkpoint", Usage: "save a checkpoint first"},
			&cli.DurationFlag{Name: "checkpoint-timeout", Value: 5 * time.Minute, Usage: "stop the job after `TIME` even if nothing is saved"},
			&cli.DurationFlag{Name: "grace", Value: -1, DefaultText: "as launched", Usage: "`TIME` between asking a task to end and killing it"}),
		Action: c.onJob(oneJob, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			cfg := jobs.StopConfig{Query: q, Grace: flags.Duration("grace")}
			if flags.Bool("checkpoint") {
				cfg.SaveTime = flags.Duration("checkpoint-timeout")
			}
			if cfg.SaveTime <= 0 && flags.Bool("checkpoint") || typed(flags, "checkpoint-timeout") && !flags.Bool("checkpoint") {
				return exit.Mistake(errors.New("--checkpoint-timeout must be more than 0 and needs --checkpoint: it is the time that the checkpoint may take"), "plx stop --checkpoint --checkpoint-timeout 5m")
			}
			return jobs.Stop(ctx, cfg)
		}),
	}
}

func (c *command) fetchCommand() *cli.Command {
	return &cli.Command{
		Name: "fetch", Usage: "gather a job's checkpoints and files from its hosts, while it runs or after", ArgsUsage: "JOB DIR [PATTERN...]",
		Description: "It gathers every checkpoint of which the hosts have all files, of all jobs with the\n" +
			"same checkpoint name, the files that the job made or changed in its working folders,\n" +
			"those that --output of plx launch named, summaries and timelines:\n" +
			"DIR/outputs/HOST/TASK/... It replaces no file in DIR. With PATTERN, such as '*.pt' or\n" +
			"'runs/**', it gathers only the files that match one, and no checkpoints.",
		Flags: reachFlags(),
		Action: c.onJob(jobAndFolder, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			return jobs.Fetch(ctx, q, flags.Args().Get(1), flags.Args().Slice()[2:])
		}),
	}
}

func (c *command) pruneCommand() *cli.Command {
	return &cli.Command{
		Name: "prune", Usage: "remove what ended jobs left here and on their hosts",
		Description: "A job is kept, and named, if it made files in its working folders on the hosts that\n" +
			"nobody has fetched: see plx fetch. Checkpoints are never removed.",
		Flags: reachFlags(
			&cli.DurationFlag{Name: "older", Value: 30 * 24 * time.Hour, Usage: "only what is older than `TIME`"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print what would be removed and how large it is, and remove nothing"},
			&cli.BoolFlag{Name: "outputs", Usage: "remove files too that jobs made and nobody fetched"}),
		Action: c.onJob(noArguments, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			return jobs.Prune(ctx, jobs.PruneConfig{Query: q, Older: flags.Duration("older"), Discard: flags.Bool("outputs"), DryRun: flags.Bool("dry-run")})
		}),
	}
}
