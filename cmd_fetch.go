package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/jobs"
)

func (c *command) fetchCommand() *cli.Command {
	return &cli.Command{
		Name: "fetch", Usage: "gather a job's checkpoints, files and logs from its hosts, while it runs or after", ArgsUsage: "JOB DIR [PATTERN...]",
		Description: "It gathers every checkpoint of which the hosts have all files, of all jobs with the\n" +
			"same checkpoint name, the files that the job made or changed in its working folders,\n" +
			"those that --output of plx launch named, summaries and timelines:\n" +
			"DIR/outputs/HOST/TASK/... What the tasks printed goes to DIR/logs/worker-3.stdout and so\n" +
			"on, and a later fetch adds what they printed since; if several hosts have logs of a task,\n" +
			"since a restart moved it, the names end in the host: worker-3.stdout.HOST. It replaces no\n" +
			"file in DIR. With PATTERN, such as '*.pt' or 'runs/**', it gathers only the files that\n" +
			"match one, and neither checkpoints nor logs.",
		Flags: reachFlags(),
		Action: c.onJob(jobAndFolder, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			return jobs.Fetch(ctx, q, flags.Args().Get(1), flags.Args().Slice()[2:])
		}),
	}
}

func jobAndFolder(ctx *cli.Context) error {
	if ctx.NArg() < 2 || ctx.Args().First() == "" || ctx.Args().Get(1) == "" {
		return exit.Mistake(errors.New("want a job and a folder for what it has made"), "plx fetch JOB DIR, or plx fetch JOB DIR '*.pt'")
	}
	return nil
}
