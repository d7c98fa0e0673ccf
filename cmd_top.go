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
			"the task whose steps take longest, the curve of the loss, and the logs, in which you can\n" +
			"search and filter. The last line lists the keys. The job keeps running when you leave plx top.\n" +
			"With --host or --hosts and no job it shows only these hosts.",
		Flags: reachFlags(),
		Action: c.onJob(oneJob, func(ctx context.Context, q jobs.Query, _ *cli.Context) error {
			if q.Job == "" && q.OnHosts {
				return jobs.TopHosts(ctx, q, os.Stdin)
			}
			return jobs.Top(ctx, q, os.Stdin)
		}),
	}
}
