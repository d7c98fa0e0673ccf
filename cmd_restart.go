package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher"
)

// restartFlags tell how a job continues after a failure.
func restartFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "max-restarts", Usage: "if a task or a host fails, end all tasks and start them again, at most `N` times"},
		&cli.IntFlag{Name: "restarts-per-hour", Value: 10, Usage: "at most `N` restarts within an hour, 0 for any number"},
		&cli.IntFlag{Name: "min-workers", Usage: "restart without lost hosts, or continue without lost workers, if `N` workers are left (default: restart with all, continue with any)"},
		&cli.DurationFlag{Name: "wait-host", Value: 5 * time.Minute, Usage: "wait `TIME` for lost hosts to return if fewer are left"},
		&cli.DurationFlag{Name: "restart-backoff", Value: time.Second, Usage: "`TIME` before the first restart; doubled before each further one, up to 1m"},
		&cli.DurationFlag{Name: "freeze-timeout", Value: 30 * time.Second, Usage: "a task of plx's trainer that sends no heartbeat for `TIME` has failed, 0 for never"},
	}
}

func restartConfig(ctx *cli.Context, cfg *launcher.Config) {
	cfg.Freeze = ctx.Duration("freeze-timeout")
	cfg.Restarts = launcher.Restarts{
		Max: ctx.Int("max-restarts"), PerHour: ctx.Int("restarts-per-hour"), MinWorkers: ctx.Int("min-workers"),
		WaitHost: ctx.Duration("wait-host"), Backoff: ctx.Duration("restart-backoff"),
	}
}
