package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/jobs"
)

func (c *command) stacksCommand() *cli.Command {
	return &cli.Command{
		Name: "stacks", Usage: "print the line of code that each task of a running job is at, without disturbing the job", ArgsUsage: "[RUNNING-JOB]",
		Description: "Tasks that are at the same line of code share a line of the output: the function that\n" +
			"is called there, the file and the number of the line. For a program that is not written\n" +
			"in Python and does not use plx's trainer, it prints what its processes wait for. For a job\n" +
			"that was ended because it hung, it prints what was recorded before: see docs/hangs.md.",
		Flags: reachFlags(
			&cli.BoolFlag{Name: "full", Usage: "print for each task what its threads wait for in the kernel, and the stacks of Python and of plx's trainer"}),
		Action: c.onJob(oneJob, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			return jobs.Stacks(ctx, q, flags.Bool("full"))
		}),
	}
}
