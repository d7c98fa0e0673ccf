package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/jobs"
)

func (c *command) metricsCommand() *cli.Command {
	return &cli.Command{
		Name: "metrics", Usage: "print or serve a job's metrics, for Prometheus and other programs", ArgsUsage: "[JOB]",
		Description: "It prints the newest values as OpenMetrics: step, loss, rate and others of each task, the use\n" +
			"of hosts and GPUs, and the state of the job. With --listen it serves them until Ctrl-C, at\n" +
			"/metrics, and has no password. With --json it prints the kept history of each task, one\n" +
			"value in a line, also of a job that has ended. docs/watch.md has recipes.",
		Flags: reachFlags(
			&cli.StringFlag{Name: "listen", Usage: "serve the metrics at `ADDRESS`, such as 127.0.0.1:9400"},
			&cli.BoolFlag{Name: "json", Usage: "write the history as JSON lines"}),
		Action: c.onJob(oneJob, func(ctx context.Context, q jobs.Query, flags *cli.Context) error {
			cfg := jobs.MetricsConfig{Query: q, Listen: flags.String("listen"), JSON: flags.Bool("json")}
			if cfg.JSON && cfg.Listen != "" {
				return exit.Mistake(errors.New("--json and --listen exclude each other"), "--listen serves OpenMetrics; plx metrics --json prints the history")
			}
			return jobs.Metrics(ctx, cfg)
		}),
	}
}
