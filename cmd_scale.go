package main

import (
	"context"
	"errors"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher"
)

func (c *command) scaleCommand() *cli.Command {
	return &cli.Command{
		Name: "scale", Usage: "have a running job go on with more or fewer hosts", ArgsUsage: "[JOB]",
		Description: "The hosts of --hosts are all that the job is to have: new ones are added, those\n" +
			"that are missing leave, others keep the devices that they have. The job saves a\n" +
			"checkpoint, so it needs --ckpt-dir, and goes on from it: see docs/elastic.md.",
		Flags: append(reachFlags(), colourFlag(),
			&cli.DurationFlag{Name: "checkpoint-timeout", Value: 5 * time.Minute, Usage: "go on with the old hosts if nothing is saved within `TIME`"}),
		Action: c.onJob(func(ctx context.Context, q launcher.Query, flags *cli.Context) error {
			q.OnHosts = false
			if len(q.Reach.Hosts) == 0 {
				return launcher.Mistake(errors.New("on which hosts?"), "plx scale JOB --hosts FILE")
			}
			if flags.Duration("checkpoint-timeout") <= 0 {
				return launcher.Mistake(errors.New("--checkpoint-timeout is the time that saving may take, more than none"), "")
			}
			return launcher.Scale(ctx, launcher.ScaleConfig{Query: q, SaveTime: flags.Duration("checkpoint-timeout")})
		}),
	}
}
