package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/jobs"
)

func (c *command) pruneCommand() *cli.Command {
	return &cli.Command{
		Name: "prune", Usage: "remove what ended jobs left here and on their hosts",
		Description: "A job is kept, and named, if it made files in its working folders on the hosts that\n" +
			"nobody has fetched: see plx fetch. So is one of which not all hosts can be asked.\n" +
			"Checkpoints are never removed.",
		Flags: reachFlags(
			&cli.DurationFlag{Name: "older", Value: 30 * 24 * time.Hour, Usage: "only what is older than `TIME`"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print what would be removed and how large it is, and remove nothing"},
			&cli.BoolFlag{Name: "outputs", Usage: "remove files too that jobs made and nobody fetched"}),
		Action: c.onJob(noArguments, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			return jobs.Prune(ctx, jobs.PruneConfig{Query: q, Older: flags.Duration("older"), Discard: flags.Bool("outputs"), DryRun: flags.Bool("dry-run")})
		}),
	}
}
