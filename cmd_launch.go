package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/logs"
)

func (c *command) launchCommand() *cli.Command {
	return &cli.Command{
		Name:      "launch",
		Usage:     "run a program on all hosts: one worker per device, and servers for plx's trainer",
		ArgsUsage: "PROGRAM [ARGS...]",
		Description: "PROGRAM is a local executable (./train), a Go package folder (./examples/mlp),\n" +
			"or the bare name of a command on the hosts' PATH. What follows it is for the program.\n" +
			"On a host each task runs in a folder of its own. An executable is stored there\n" +
			"under its content hash: that path is $0 of a script, and files beside the script\n" +
			"must be sent with --workdir or --copy.\n\n" +
			"Examples:\n" +
			"   plx launch --hosts resources.txt ./train --learning-rate 0.1\n" +
			"   plx launch --hosts resources.txt --workdir . python3 train.py\n" +
			"   plx launch --hosts resources.txt --workdir . --venv .venv --check-import torch python3 train.py\n" +
			"   plx launch --hosts resources.txt --workdir . --setup 'ulimit -c 0' ./train\n" +
			"   plx launch --slurm --partition gpu --nodes 2 --gpus 8 ./train\n\n" + exitCodes,
		Flags:  targetFlags(launchFlags()...),
		Action: c.launch,
	}
}

func launchFlags() []cli.Flag {
	return slices.Concat(
		group("Slurm", submitFlags()...),
		group("Workers and servers",
			&cli.IntFlag{Name: "n", Usage: "`N` workers in all"},
			&cli.IntFlag{Name: "workers-per-host", Usage: "`N` workers on each host"},
			&cli.StringFlag{Name: "ps", Value: "auto", Usage: "parameter servers on `auto|all|none|HOSTS` (host,host); auto: all for a program of plx's trainer, none for others"},
			&cli.StringFlag{Name: "visible", Value: "auto", Usage: "devices that a worker sees, `auto|own|host`: its own, or those of all workers on its host; auto: host for programs that choose a device by LOCAL_RANK, as programs for torchrun do, own for others"},
			&cli.BoolFlag{Name: "share-gpus", Usage: "use GPUs that other programs use, and let other jobs with --share-gpus use them too"},
			&cli.BoolFlag{Name: "no-bind", Usage: "do not bind workers to their share of the cores"},
			&cli.StringFlag{Name: "nic", Usage: "send data over network interface `NAME` of each host (nic=NAME in the resource file: of one host)"},
			&cli.BoolFlag{Name: "tls", Usage: "encrypt the data that plx's trainer sends between hosts; without it a checksum only detects accidental changes"},
			&cli.StringFlag{Name: "port-range", Usage: "use ports `LOW-HIGH` on the hosts"},
			&cli.StringFlag{Name: "local", Value: "2x1", Usage: "size of the embedded cluster, `HOSTSxWORKERS`, when no host is named"}),
		group("Files and environment",
			&cli.StringFlag{Name: "workdir", Usage: "run in a copy of the folder `DIR` of this machine, one on each host; what git ignores or .plxignore excludes stays here"},
			&cli.BoolFlag{Name: "keep-links", Usage: "with --workdir, send links that lead out of the folder as they are, to paths of the hosts"},
			&cli.StringFlag{Name: "venv", Usage: "run in a copy of the Python virtual environment `DIR` of this machine, one on each host"},
			&cli.StringSliceFlag{Name: "check-import", Usage: "import `MODULES` (torch,numpy) with python3 on each host before tasks start; for torch, compare its CUDA version with the driver's"},
			&cli.StringSliceFlag{Name: "copy", Usage: "send `FILE-OR-FOLDER` into the tasks' working folders; repeatable"},
			&cli.StringSliceFlag{Name: "env", Usage: "set variable `NAME[=VALUE]` of the tasks; repeatable. Other users of this machine see VALUE in the process list; NAME alone and --env-file hide it"},
			&cli.StringSliceFlag{Name: "env-file", Usage: "set the variables in `FILE` for the tasks, NAME=VALUE or NAME on each line; repeatable"},
			&cli.StringFlag{Name: "path", Usage: "`FOLDERS` to put before the hosts' PATH"},
			&cli.StringFlag{Name: "chdir", Usage: "`FOLDER` on the hosts to run in, instead of the task's own"},
			&cli.StringFlag{Name: "setup", Usage: "shell `COMMAND` to run before the program, in its directory and environment: with --workdir once on each host, else in each task"}),
		group("Output", append([]cli.Flag{
			verboseFlag(), stampsFlag(), prefixFlag(), statusFlag(), notifyFlag(),
			&cli.BoolFlag{Name: "json", Usage: "write events of the job and the lines of tasks to stdout as lines of JSON, and nothing else: see docs/output.md"},
			&cli.StringFlag{Name: "grep", Usage: "show only lines that match `RE`"},
			&cli.StringFlag{Name: "log-dir", Usage: "keep a file of each task's stdout and one of its stderr in `DIR` on this machine"},
			&cli.StringFlag{Name: "log-limit", Value: "1GiB", Usage: "a host keeps the newest `SIZE` of a task's output, such as 500MiB; 0 or none: all of it"},
			&cli.StringSliceFlag{Name: "metric", Usage: "plx status shows the number in lines that match, as `NAME=REGEXP` with one group, such as 'loss=LOSS ([0-9.]+)'; repeatable. loss: 0.31, JSON, tqdm, Keras and others are known without it"},
		}, taskFlags()...)...),
		group("Job and checkpoints",
			&cli.StringFlag{Name: "name", Usage: "the job's `NAME`; a program with --ckpt-dir resumes from checkpoints of that name"},
			&cli.BoolFlag{Name: "keep-diff", Usage: "store the git diff of the program's folder with the job, for plx report"},
			&cli.StringFlag{Name: "resume", Usage: "resume from the checkpoints of `JOB`, an id or a name"},
			&cli.StringSliceFlag{Name: "output", Usage: "the job makes files that match `PATTERN`, relative to where the tasks run, such as '*.pt' or 'runs/**'; repeatable"},
			&cli.StringFlag{Name: "fetch", Usage: "after the job, gather checkpoints, outputs, logs, summaries and timelines from all hosts into `DIR` on this machine"},
			&cli.BoolFlag{Name: "detach", Usage: "return when all tasks have started, print the job's id"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print the plan and connect to no host"},
			&cli.DurationFlag{Name: "checkpoint-timeout", Usage: "`TIME` to save a checkpoint before SIGTERM or a preemption ends the job, 0 for none", Value: launcher.DefaultSaveTime}),
		group("Failures",
			&cli.IntFlag{Name: "max-restarts", Usage: "if a task or a host fails, end all tasks and start them again, at most `N` times"},
			&cli.IntFlag{Name: "restarts-per-hour", Value: 10, Usage: "at most `N` restarts within an hour, 0 for any number"},
			&cli.IntFlag{Name: "min-workers", Usage: "restart without lost hosts, or continue without lost workers, if `N` workers are left (default: restart with all, continue with any)"},
			&cli.DurationFlag{Name: "wait-host", Value: 5 * time.Minute, Usage: "wait `TIME` for lost hosts to return if fewer are left"},
			&cli.DurationFlag{Name: "restart-backoff", Value: time.Second, Usage: "`TIME` before the first restart; doubled before each further one, up to 1m"},
			&cli.DurationFlag{Name: "hang-timeout", Value: launcher.DefaultHang, Usage: "a job counts as hung if it makes no progress for `TIME`, 0 for never: see docs/hangs.md"},
			&cli.StringFlag{Name: "on-hang", Value: "report", Usage: "`report|stop|restart` a job that hangs: report it and go on, stop it with status 124, or restart it (--max-restarts)"},
			&cli.DurationFlag{Name: "freeze-timeout", Value: 30 * time.Second, Usage: "a task of plx's trainer that sends no heartbeat for `TIME` has failed, 0 for never"}),
		group("Time limits",
			&cli.DurationFlag{Name: "wait-gpus", Usage: "wait up to `TIME` for GPUs that others use; launches get them in the order in which they began to wait"},
			probeFlag(),
			&cli.DurationFlag{Name: "start-timeout", Usage: "all tasks must have started within `TIME`", DefaultText: "5m"},
			&cli.DurationFlag{Name: "setup-timeout", Usage: "with --workdir, --setup may take `TIME` on a host", DefaultText: "10m"},
			&cli.DurationFlag{Name: "max-time", Usage: "end the job after `TIME`"},
			&cli.DurationFlag{Name: "lease", Usage: "a host ends its tasks if it has not heard from the launcher for `TIME`", DefaultText: "30s"},
			&cli.DurationFlag{Name: "grace", Usage: "`TIME` between asking a task to end and killing it", Value: jobs.DefaultGrace}),
	)
}

func (c *command) launch(ctx *cli.Context) error {
	c.json = ctx.Bool("json")
	if submit, err := mustSubmit(ctx); err != nil {
		return err
	} else if submit {
		return c.submit(ctx)
	}
	r, job, err := target(ctx)
	if err != nil {
		return err
	}
	cfg, err := c.settings(ctx, r)
	if err != nil {
		return err
	}
	if job != nil {
		nameSlurmJob(job, &cfg)
	}
	if err := lateHosts(ctx, cfg); err != nil {
		return err
	}
	// If the reader of plx's output exits, plx must end the job cleanly
	// instead of dying by SIGPIPE.
	signal.Ignore(syscall.SIGPIPE)
	warnOfFlags(cfg)
	for _, note := range hostfile.Warnings(cfg.Hosts, ctx.StringSlice("host")) {
		console.NewPrinter(cfg.Terminal).Printf("note: %s", note)
	}
	signals, stop := c.signals()
	defer stop()
	c.reported = true // From now on, package launcher itself prints each error of the launch, so main must not print it.
	c.code, err = launcher.Launch(context.Background(), cfg, signals)
	return err
}

// lateHosts returns an error if --hosts or --host comes after the program and
// no hosts come before it. Without this error, plx would pass the flag to the
// program and run the job on the local machine.
func lateHosts(ctx *cli.Context, cfg launcher.Config) error {
	if len(cfg.Hosts) > 0 || ctx.IsSet("local") {
		return nil
	}
	for i, arg := range cfg.Args {
		name, value, joined := strings.Cut(arg, "=")
		if name != "--hosts" && name != "--host" {
			continue
		}
		if !joined && i+1 < len(cfg.Args) {
			value = cfg.Args[i+1]
		}
		return exit.Mistake(fmt.Errorf("%s comes after %s and is passed to it, and no hosts are named for plx", name, cfg.Program),
			"plx launch %s %s %s; if it is meant for the program, say where to run: --local 2x1", name, value, cfg.Program)
	}
	return nil
}

// warnOfFlags prints a note for each flag after the program that looks like a
// flag of plx. Such a flag is passed to the program.
func warnOfFlags(cfg launcher.Config) {
	for _, arg := range cfg.Args {
		name, _, _ := strings.Cut(arg, "=")
		if slices.Contains(ownFlags, name) {
			console.NewPrinter(cfg.Terminal).Printf("note: %s comes after %s and is passed to it: plx's own flags come before the program", name, cfg.Program)
		}
	}
}

// ownFlags lists flags of plx launch that other programs rarely have. If one
// of them follows the program, the user probably meant it for plx.
var ownFlags = []string{"--hosts", "--host", "--ps", "--detach", "--local", "--dry-run", "--fetch", "--max-restarts",
	"--min-workers", "--wait-host", "--workers-per-host", "--checkpoint-timeout"}

// settings reads all flags of plx launch, except those that choose the hosts.
// The parameter r already contains the hosts.
func (c *command) settings(ctx *cli.Context, r hosts.Reach) (cfg launcher.Config, err error) {
	cfg.Reach, cfg.Stdin = r, os.Stdin
	if cfg.LocalHosts, cfg.LocalWorkers, err = local(ctx.String("local")); err != nil {
		return cfg, err
	}
	cfg.LocalGiven = typed(ctx, "local")
	if cfg.LocalGiven && len(cfg.Hosts) > 0 {
		return cfg, exit.Mistake(errors.New("--local is the size of the embedded cluster, which is not used if hosts are named"), "leave --local out; --workers-per-host N changes the number of workers")
	}
	if cfg.Interface, err = nic(ctx); err != nil {
		return cfg, err
	}
	if cfg.PortLow, cfg.PortHigh, err = portRange(ctx.String("port-range")); err != nil {
		return cfg, err
	}
	cfg.Terminal = c.terminal(ctx)
	if cfg.LogLimit, err = logLimit(ctx.String("log-limit")); err != nil {
		return cfg, err
	}
	cfg.ShowTasks, cfg.Timestamps, cfg.NoPrefix = shownTasks(ctx), ctx.Bool("timestamps"), ctx.Bool("no-prefix")
	if cfg.Grep, err = pattern(ctx, "grep"); err != nil {
		return cfg, err
	}
	cfg.Metrics = ctx.StringSlice("metric")
	if _, err = metrics.ParsePatterns(cfg.Metrics); err != nil {
		return cfg, exit.Mistake(fmt.Errorf("--metric: %w", err), "--metric 'loss=LOSS ([0-9.]+)'")
	}
	for _, name := range []string{"ps", "name", "resume", "fetch", "workdir", "venv"} {
		if ctx.IsSet(name) && ctx.String(name) == "" {
			return cfg, emptyValue(name)
		}
	}
	placeConfig(ctx, &cfg)
	cfg.Hang = launcher.HangPlan{Timeout: ctx.Duration("hang-timeout"), Action: ctx.String("on-hang")}
	cfg.FreezeTimeout, cfg.Restarts = ctx.Duration("freeze-timeout"), launcher.Restarts{
		Max: ctx.Int("max-restarts"), PerHour: ctx.Int("restarts-per-hour"), MinWorkers: ctx.Int("min-workers"),
		WaitHost: ctx.Duration("wait-host"), Backoff: ctx.Duration("restart-backoff"),
	}
	cfg.Env, cfg.EnvFiles = ctx.StringSlice("env"), ctx.StringSlice("env-file")
	cfg.Program, cfg.Args = ctx.Args().First(), ctx.Args().Tail()
	cfg.Name, cfg.Detach, cfg.DryRun = ctx.String("name"), ctx.Bool("detach"), ctx.Bool("dry-run")
	cfg.Workdir, cfg.KeepLinks = ctx.String("workdir"), ctx.Bool("keep-links")
	cfg.Venv, cfg.CheckImport = ctx.String("venv"), ctx.StringSlice("check-import")
	cfg.Copy, cfg.Chdir, cfg.Setup, cfg.Path = ctx.StringSlice("copy"), ctx.String("chdir"), ctx.String("setup"), ctx.String("path")
	cfg.LogDir, cfg.LogLevel = ctx.String("log-dir"), os.Getenv("PLX_LOG_LEVEL")
	cfg.Verbose = ctx.Bool("v") || strings.EqualFold(cfg.LogLevel, "debug") || strings.EqualFold(cfg.LogLevel, "verbose")
	// Without --workdir, the command of --setup runs within each task, and plx
	// forwards no SSH agent to tasks.
	cfg.ForwardAgent = cfg.Setup != "" && ctx.String("workdir") != ""
	cfg.StartTimeout, cfg.MaxTime, cfg.SetupTime = ctx.Duration("start-timeout"), ctx.Duration("max-time"), ctx.Duration("setup-timeout")
	cfg.DialTime = cfg.StartTimeout // A host that takes longer than StartTimeout to connect cannot start its tasks in time.
	cfg.TLS = ctx.Bool("tls")
	cfg.Lease, cfg.Grace = ctx.Duration("lease"), ctx.Duration("grace")
	cfg.CommandLine, cfg.Version = append([]string{"plx"}, os.Args[1:]...), versionLine()
	cfg.KeepDiff = ctx.Bool("keep-diff")
	if cfg.Notify = ctx.String("notify"); cfg.Detach && !typed(ctx, "notify") {
		cfg.Notify = "" // A default for --notify applies only to jobs that plx follows to their end, so a detached job ignores it.
	}
	cfg.JSON = ctx.Bool("json")
	cfg.Output = ctx.StringSlice("output")
	cfg.Resume, cfg.Fetch, cfg.CheckpointTimeout = ctx.String("resume"), ctx.String("fetch"), ctx.Duration("checkpoint-timeout")
	return cfg, nil
}

func placeConfig(ctx *cli.Context, cfg *launcher.Config) {
	cfg.Workers, cfg.PerHost, cfg.NoBind = ctx.Int("n"), ctx.Int("workers-per-host"), ctx.Bool("no-bind")
	cfg.ShareGPUs, cfg.WaitGPUs = ctx.Bool("share-gpus"), ctx.Duration("wait-gpus")
	switch servers := ctx.String("ps"); {
	case servers == "auto":
		cfg.AutoServers = true
	case servers == "none":
		cfg.NoServers = true
	case servers != "all":
		cfg.Servers = strings.Split(servers, ",")
	}
	cfg.AutoVisible, cfg.VisibleHost = ctx.String("visible") == "auto", ctx.String("visible") == "host"
}

// local parses the value of --local, HOSTSxWORKERS.
func local(text string) (hosts, workers int, err error) {
	hosts, workers, ok := numbers(text, "x")
	if !ok || hosts < 1 || workers < 1 || hosts > 256 || workers > 256 {
		return 0, 0, exit.Mistake(fmt.Errorf("--local %s: want HOSTSxWORKERS, such as 2x1, with 1 to 256 hosts", text), "--local 2x1")
	}
	return hosts, workers, nil
}

// sizeText matches a number with an optional unit, such as 500MiB.
var sizeText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([0-9]{1,15}(?:\.[0-9]{1,6})?) ?(?:([KMGT])?(I?B)?)$`)
})

// logLimit parses the value of --log-limit as a number of bytes. 0 means no
// limit.
func logLimit(text string) (int64, error) {
	if text == "none" {
		return 0, nil
	}
	m := sizeText().FindStringSubmatch(strings.ToUpper(text))
	if m == nil {
		return 0, exit.Mistake(fmt.Errorf("--log-limit %s: want a size, such as 500MiB or 2GiB, or none", text), "--log-limit 1GiB")
	}
	unit := 1024.0
	if m[2] != "" && m[3] == "B" {
		unit = 1000
	}
	number, _ := strconv.ParseFloat(m[1], 64) // ParseFloat returns no error, since the pattern matches only numbers
	bytes := number * math.Pow(unit, float64(1+strings.Index("KMGT", m[2])))
	if m[2] == "" {
		bytes = number
	}
	switch {
	case bytes == 0:
		return 0, nil
	case bytes < logs.MinLimit:
		return 0, exit.Mistake(fmt.Errorf("--log-limit %s is too small, at least 1MiB is needed", text), "--log-limit 1MiB, or none for no limit")
	case bytes > math.MaxInt64/2:
		return 0, exit.Mistake(fmt.Errorf("--log-limit %s is larger than any disk", text), "--log-limit none")
	}
	return int64(bytes), nil
}
