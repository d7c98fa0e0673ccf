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
		Description: "plx keeps a job, and prints its name, if it made files in its working folders on the\n" +
			"hosts that were not fetched: see plx fetch. It also keeps a job if one of its hosts\n" +
			"cannot be reached.\n" +
			"Checkpoints are never removed without --all. --hosts and --host add hosts of jobs that were\n" +
			"launched from elsewhere.\n\n" +
			"--all uninstalls plx: it removes all of ~/.plx, here, on the hosts of jobs launched from\n" +
			"here, and on those of --hosts and --host, to which plx exec or plx doctor may have brought\n" +
			"it. On a host where a job or another plx runs, it removes nothing, prints the name of the\n" +
			"host, and fails. A host that keeps checkpoints, or files that were not fetched, also keeps\n" +
			"what they need.\n" +
			"--all --outputs removes both.",
		Flags: reachFlags(
			&cli.BoolFlag{Name: "all", Usage: "remove all of plx, of any age, except checkpoints and files that were not fetched"},
			&cli.DurationFlag{Name: "older", Value: 30 * 24 * time.Hour, Usage: "only what is older than `TIME`"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print what would be removed and how large it is, and remove nothing"},
			&cli.BoolFlag{Name: "outputs", Usage: "also remove files that jobs made and that were not fetched; with --all also checkpoints"}),
		Action: c.onJob(noArguments, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			cfg := jobs.PruneConfig{Query: q, Older: flags.Duration("older"), Discard: flags.Bool("outputs"), DryRun: flags.Bool("dry-run"), All: flags.Bool("all")}
			if cfg.All {
				if typed(flags, "older") {
					return exit.Mistake(errors.New("--all removes what is of any age, so --older has no meaning with it"), "leave one of them out")
				}
				cfg.Older = 0
			} else if !typed(flags, "hosts") && !typed(flags, "host") {
				// The hosts in cfg come from the user's defaults, and are
				// perhaps not the hosts of the jobs to prune.
				cfg.Reach.Hosts = nil
			}
			return jobs.Prune(ctx, cfg)
		}),
	}
}
