package main

import (
	"context"
	"errors"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/jobs"
)

func (c *command) pruneCommand() *cli.Command {
	return &cli.Command{
		Name: "prune", Usage: "remove what ended jobs left here and on their hosts",
		Description: "A job is kept, and named, if it made files in its working folders on the hosts that\n" +
			"nobody has fetched: see plx fetch. So is one of which not all hosts can be asked.\n" +
			"Checkpoints are never removed without --all. --hosts and --host add hosts of jobs that were\n" +
			"launched from elsewhere.\n\n" +
			"--all uninstalls plx: it removes all of ~/.plx, here, on the hosts of jobs launched from\n" +
			"here, and on those of --hosts and --host, to which plx exec or plx doctor may have brought\n" +
			"it. Where a job or another plx runs it removes nothing, names the host, and fails.\n" +
			"A host that keeps files nobody has fetched, or checkpoints, also keeps what they need.\n" +
			"--all --outputs removes both.",
		Flags: reachFlags(
			&cli.BoolFlag{Name: "all", Usage: "remove all of plx, of any age, but what nobody has fetched, and checkpoints"},
			&cli.DurationFlag{Name: "older", Value: 30 * 24 * time.Hour, Usage: "only what is older than `TIME`"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print what would be removed and how large it is, and remove nothing"},
			&cli.BoolFlag{Name: "outputs", Usage: "remove files too that jobs made and nobody fetched; with --all checkpoints too"}),
		Action: c.onJob(noArguments, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			cfg := jobs.PruneConfig{Query: q, Older: flags.Duration("older"), Discard: flags.Bool("outputs"), DryRun: flags.Bool("dry-run"), All: flags.Bool("all")}
			if cfg.All {
				if typed(flags, "older") {
					return exit.Mistake(errors.New("--all removes what is of any age, so --older has no meaning with it"), "leave one of them out")
				}
				cfg.Older = 0
			} else if !typed(flags, "hosts") && !typed(flags, "host") {
				// These hosts come from the user's defaults, and may have
				// nothing to do with the jobs.
				cfg.Reach.Hosts = nil
			}
			return jobs.Prune(ctx, cfg)
		}),
	}
}
