package main

import (
	"context"
	"errors"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/jobs"
)

func (c *command) stopCommand() *cli.Command {
	return &cli.Command{
		Name: "stop", Usage: "end a job and wait until nothing of it is left", ArgsUsage: "[RUNNING-JOB]",
		Description: "Without a name it ends the only job that runs. If several run, or a launch is still\n" +
			"starting one, it lists them, ends none, and its exit status is 2.",
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
