package main

import (
	"context"
	"errors"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/jobs"
)

func (c *command) scaleCommand() *cli.Command {
	return &cli.Command{
		Name: "scale", Usage: "change the hosts of a running job", ArgsUsage: "[RUNNING-JOB]",
		Description: "--hosts names all hosts that the job will have: new hosts join, missing ones leave,\n" +
			"and the others keep their devices. The job saves a checkpoint and resumes from it,\n" +
			"so its program needs --ckpt-dir: see docs/elastic.md. Without a name it changes the\n" +
			"only job that runs. If several run, or a launch is still starting one, it lists them,\n" +
			"changes none, and its exit status is 2.",
		Flags: reachFlags(
			&cli.DurationFlag{Name: "checkpoint-timeout", Value: 5 * time.Minute, Usage: "keep the old hosts if nothing is saved within `TIME`"}),
		Action: c.onJob(oneJob, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			q.OnHosts, q.Named = false, nil // do not search for the job on --hosts, which lists the hosts that the job will have
			if len(q.Reach.Hosts) == 0 {
				return exit.Mistake(errors.New("the hosts are missing"), "plx scale JOB --hosts FILE")
			}
			if flags.Duration("checkpoint-timeout") <= 0 {
				return exit.Mistake(errors.New("--checkpoint-timeout must be more than 0: it is the time that the checkpoint may take"), "--checkpoint-timeout 5m")
			}
			return jobs.Scale(ctx, jobs.ScaleConfig{Query: q, SaveTime: flags.Duration("checkpoint-timeout")})
		}),
	}
}
