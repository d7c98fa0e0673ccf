package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/jobs"
)

func (c *command) stacksCommand() *cli.Command {
	return &cli.Command{
		Name: "stacks", Usage: "print where each task of a running job is, without harm to it", ArgsUsage: "[RUNNING-JOB]",
		Description: "Tasks whose programs are at the same line are one line of the output: the function that\n" +
			"is called there, the file and the number of the line. Of a program that is not written\n" +
			"in Python and does not use plx's trainer it has what its processes wait for. Of a job that\n" +
			"was ended because it hung it prints what was written before: see docs/hangs.md.",
		Flags: reachFlags(
			&cli.BoolFlag{Name: "full", Usage: "print of each task what its threads wait for, by the kernel's view, and the stacks of Python and of plx's trainer"}),
		Action: c.onJob(oneJob, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			return jobs.Stacks(ctx, q, flags.Bool("full"))
		}),
	}
}
