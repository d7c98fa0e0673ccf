package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/logs"
)

func (c *command) attachCommand() *cli.Command {
	return &cli.Command{
		Name: "attach", Usage: "follow a running job and exit with its status", ArgsUsage: "[JOB]",
		Flags: reachFlags(append(taskFlags(), verboseFlag(), stampsFlag(), prefixFlag(), statusFlag(), notifyFlag())...),
		Action: c.onJob(oneJob, func(ctx context.Context, q jobs.Query, flags *cli.Context) (err error) {
			q.Notify = flags.String("notify")
			c.code, err = jobs.Attach(ctx, q, logs.Options{Verbose: flags.Bool("v"), Timestamps: flags.Bool("timestamps"), NoPrefix: flags.Bool("no-prefix"), Only: shownTasks(flags)})
			return err
		}),
	}
}
