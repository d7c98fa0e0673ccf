package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/jobs"
)

func (c *command) jobsCommand() *cli.Command {
	return &cli.Command{
		Name: "jobs", Usage: "list the jobs launched from here, or found on --hosts",
		Description: "On a terminal each job is one line, and columns that do not fit are left out: plx status\n" +
			"JOB shows all of one job. In a pipe no column is left out.",
		Flags: reachFlags(
			&cli.BoolFlag{Name: "running", Usage: "only jobs that have not ended"},
			&cli.IntFlag{Name: "n", Usage: "only the newest `N`"},
			jsonFlag()),
		Action: c.onJob(noArguments, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			n := flags.Int("n")
			if n < 0 || n == 0 && typed(flags, "n") {
				return exit.Mistake(fmt.Errorf("-n %d: want the number of jobs to list", n), "-n 10, or no -n for all jobs")
			}
			return jobs.List(ctx, q, jobs.ListFilter{Running: flags.Bool("running"), Newest: n}, flags.Bool("json"))
		}),
	}
}
