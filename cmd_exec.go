package main

import (
	"context"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/exec"
	"github.com/plx-run/plx/launcher/jobs"
)

func (c *command) execCommand() *cli.Command {
	return &cli.Command{
		Name:      "exec",
		Usage:     "run a command on all hosts, and print equal outputs once",
		ArgsUsage: "[--] COMMAND [ARGS...]",
		Description: "COMMAND is a program on the hosts. Its arguments are passed unchanged, without a shell;\n" +
			"for a shell: plx exec --hosts FILE -- bash -c 'ls *.log | wc -l'. It runs in the home\n" +
			"folder with an empty stdin. When it exits, plx ends the processes that it left in the\n" +
			"background. Ctrl-C ends it on all hosts. A host also ends it if it has not heard from\n" +
			"plx for --lease. plx prints the outputs after COMMAND has ended on all hosts, equal ones\n" +
			"once, and keeps the first 4 MiB of each stream of a host, 256 MiB in all. With --stream\n" +
			"it prints each line at once, after the name of its host.\n\n" +
			"--json writes an array with an object for each host: host, status, stdout, stderr,\n" +
			"and error instead of a status. Text that is not UTF-8 is in stdoutBase64 or\n" +
			"stderrBase64; stdoutCut and stderrCut count bytes that are left out.\n\n" +
			"Exit status: the largest of all hosts. A host that cannot be reached, or is lost,\n" +
			"counts with 125; one where --max-time ran out with 124; 126 and 127 as in a shell.\n" +
			"130 after Ctrl-C, 2 for wrong flags.",
		Flags: targetFlags(jsonFlag(),
			&cli.BoolFlag{Name: "stream", Usage: "print each line at once, after the name of its host"},
			&cli.StringSliceFlag{Name: "env", Usage: "set variable `NAME[=VALUE]` of the command; repeatable. Other users of this machine see VALUE in the process list; NAME alone and --env-file hide it"},
			&cli.StringSliceFlag{Name: "env-file", Usage: "set the variables in `FILE` for the command; repeatable"},
			&cli.StringFlag{Name: "chdir", Usage: "`FOLDER` on the hosts to run in, instead of the home"},
			&cli.StringFlag{Name: "setup", Usage: "shell `COMMAND` to run before the command, such as 'source venv/bin/activate'"},
			&cli.StringFlag{Name: "path", Usage: "`FOLDERS` to put before the hosts' PATH"},
			&cli.DurationFlag{Name: "max-time", Usage: "end the command after `TIME`"},
			&cli.DurationFlag{Name: "lease", Value: jobs.DefaultLease, Usage: "a host ends the command if it has not heard from plx for `TIME`"},
			&cli.DurationFlag{Name: "grace", Value: jobs.DefaultGrace, Usage: "`TIME` between asking the command to end and killing it"}),
		Action: c.exec,
	}
}

func (c *command) exec(ctx *cli.Context) error {
	cfg := exec.Config{Stdin: os.Stdin, Program: ctx.Args().First(), Args: ctx.Args().Tail(),
		Env: ctx.StringSlice("env"), EnvFiles: ctx.StringSlice("env-file"),
		Chdir: ctx.String("chdir"), Setup: ctx.String("setup"), Path: ctx.String("path"),
		MaxTime: ctx.Duration("max-time"), Lease: ctx.Duration("lease"), Grace: ctx.Duration("grace"), JSON: ctx.Bool("json"), Stream: ctx.Bool("stream")}
	var err error
	if cfg.Reach, _, err = target(ctx); err != nil {
		return err
	}
	cfg.ForwardAgent = true
	cfg.Terminal = c.terminal(ctx)
	signals, stop := c.signals()
	defer stop()
	c.code, err = exec.Run(context.Background(), cfg, signals)
	return err
}
