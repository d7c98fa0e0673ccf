package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/jobs"
)

func (c *command) statusCommand() *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "show how a job ended, or what each task of a running job does", ArgsUsage: "[JOB]",
		Description: "For each task of a running job it shows the step, and for how long the task has made no\n" +
			"progress: no output, no step, no bytes through sockets or files, no processor time.\n" +
			"For a job that failed or hung it shows the role of each task: culprit, victim, torn\n" +
			"down. docs/launching.md lists the fields of --json.",
		Flags: reachFlags(jsonFlag()),
		Action: c.onJob(oneJob, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			return jobs.Status(ctx, q, flags.Bool("json"))
		}),
	}
}
