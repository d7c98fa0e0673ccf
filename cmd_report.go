package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/jobs"
)

func (c *command) reportCommand() *cli.Command {
	return &cli.Command{
		Name: "report", Usage: "write a page on jobs: curves, events, differences, verdict", ArgsUsage: "[JOB...]",
		Description: "The page is one HTML file that needs no network. Of several jobs it lays the curves over each\n" +
			"other and lists what they differ in. What a job was launched with, its metrics, the use of its\n" +
			"hosts and its events are kept with the job on this machine; its hosts are asked for what is\n" +
			"missing here. plx report without a JOB is about the newest. docs/watch.md shows a page.",
		Flags: reachFlags(
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to `FILE`, or to stdout if it is - (default: JOB.html, with --format md or json stdout)"},
			&cli.StringFlag{Name: "format", Value: "html", Usage: "`html|md|json`"},
			&cli.BoolFlag{Name: "force", Usage: "replace FILE even if it is no report"}),
		Action: c.onJob(func(*cli.Context) error { return nil }, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			cfg := jobs.ReportConfig{Query: q, Jobs: flags.Args().Slice(), Format: flags.String("format"), Output: flags.String("output"), Force: flags.Bool("force")}
			if !slices.Contains(jobs.Formats(), cfg.Format) {
				return exit.Mistake(fmt.Errorf("--format %s: want html, md or json", cfg.Format), "--format html")
			}
			if typed(flags, "output") && cfg.Output == "" {
				return exit.Mistake(errors.New("--output: the name is empty"), "-o report.html, or -o - for stdout")
			}
			if len(cfg.Jobs) == 0 {
				cfg.Jobs = []string{""}
			}
			return jobs.Report(ctx, cfg)
		}),
	}
}
