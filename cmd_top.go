package main

import (
	"context"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/jobs"
)

func (c *command) topCommand() *cli.Command {
	return &cli.Command{
		Name: "top", Usage: "show a running job, or hosts, on the whole terminal: GPUs, tasks, loss and logs", ArgsUsage: "[RUNNING-JOB]",
		Description: "It shows how much of the hosts and GPUs is used, what each task does and its last line,\n" +
			"the task whose steps take longest, the curve of the loss, and the logs, in which one can\n" +
			"search and filter. Keys are at its foot. To leave it leaves the job running. With --host or\n" +
			"--hosts and no job it shows these hosts alone.",
		Flags: reachFlags(),
		Action: c.onJob(oneJob, func(ctx context.Context, q jobs.Query, _ *cli.Context) error {
			if q.Job == "" && q.OnHosts {
				return jobs.TopHosts(ctx, q, os.Stdin)
			}
			return jobs.Top(ctx, q, os.Stdin)
		}),
	}
}
