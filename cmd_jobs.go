package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/jobs"
)

func (c *command) jobsCommand() *cli.Command {
	return &cli.Command{
		Name: "jobs", Usage: "list the jobs launched from here, or found on --hosts",
		Flags: reachFlags(jsonFlag()),
		Action: c.onJob(noArguments, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			return jobs.List(ctx, q, flags.Bool("json"))
		}),
	}
}
