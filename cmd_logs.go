package main

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/jobs"
)

func (c *command) logsCommand() *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "print a job's logs, while it runs or after", ArgsUsage: "[JOB]",
		Flags: append(slices.DeleteFunc(reachFlags(), choosesHosts), jsonFlag(),
			&cli.BoolFlag{Name: "v", Aliases: []string{"verbose"}, Usage: "first print the plan of the launch"},
			&cli.BoolFlag{Name: "f", Aliases: []string{"follow"}, Usage: "follow the job until it ends"},
			taskFlags()[0], taskFlags()[1], stampsFlag(), prefixFlag(), statusFlag(),
			&cli.IntFlag{Name: "tail", Value: -1, Usage: "only the last `N` lines of each task's stdout and of its stderr"},
			&cli.DurationFlag{Name: "since", Usage: "only lines of the last `TIME`, such as 10m"},
			&cli.StringFlag{Name: "grep", Usage: "only lines that match `RE`"},
			&cli.StringSliceFlag{Name: linesOut, Usage: "leave out lines that match `RE`; repeatable"}),
		Action: c.logs,
	}
}

// linesOut is the name of the flag with which plx logs leaves out lines. In
// other commands, the flag --exclude leaves out hosts.
const linesOut = "exclude"

// choosesHosts reports whether f is --include or --exclude, which select hosts
// of a resource file. plx logs does not have them: --host and --task select
// what it prints.
func choosesHosts(f cli.Flag) bool { return longName(f) == "include" || longName(f) == "exclude" }

// logs implements plx logs. In this command, --host names the hosts whose logs
// are printed, not the hosts to connect to.
func (c *command) logs(ctx *cli.Context) error {
	cfg := jobs.LogsConfig{Follow: ctx.Bool("f"), Tasks: shownTasks(ctx), Tail: ctx.Int("tail"),
		Since: ctx.Duration("since"), JSON: ctx.Bool("json"), Plan: ctx.Bool("v"), Hosts: ctx.StringSlice("host"), Stamps: ctx.Bool("timestamps"), NoPrefix: ctx.Bool("no-prefix")}
	if err := oneJob(ctx); err != nil {
		return err
	}
	cfg.Job, cfg.OnHosts = ctx.Args().First(), typed(ctx, "hosts")
	var err error
	if cfg.Reach, err = fileReach(ctx); err != nil {
		return err
	}
	cfg.Terminal = c.terminal(ctx)
	if cfg.Grep, err = pattern(ctx, "grep"); err != nil {
		return err
	}
	if cfg.Exclude, err = patterns(ctx, linesOut); err != nil {
		return err
	}
	if cfg.Since < 0 {
		return exit.Mistake(fmt.Errorf("--since %s is in the future", cfg.Since), "--since %s for that much of the past", -cfg.Since)
	}
	base, cancel := c.context()
	defer cancel()
	return jobs.Logs(base, cfg)
}
