package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/jobs"
)

func (c *command) stacksCommand() *cli.Command {
	return &cli.Command{
		Name: "stacks", Usage: "print where each task of a running job is, without harm to it", ArgsUsage: "[RUNNING-JOB]",
		Description: "Of each process it prints what its threads wait for, by the kernel's view; of Python\n" +
			"the stacks of its threads, and of plx's trainer those of its goroutines. Of a job that\n" +
			"was ended because it hung it prints what was written before: see docs/hangs.md.",
		Flags: reachFlags(),
		Action: c.onJob(oneJob, func(ctx context.Context, q jobs.Query, _ *cli.Context) error {
			return jobs.Stacks(ctx, q)
		}),
	}
}
