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
		Description: "COMMAND is one of the hosts. Its arguments are passed as they are, without a shell;\n" +
			"for a shell: plx exec --hosts FILE -- bash -c 'ls *.log | wc -l'. It runs in the home\n" +
			"folder with an empty stdin. What it leaves in the background ends with it, and all\n" +
			"ends with Ctrl-C. A host ends it too when it has not heard plx for --lease.\n" +
			"plx prints outputs after the last host has ended, equal ones once, and keeps the first\n" +
			"4 MiB of each stream of a host, 256 MiB in all. With --stream it prints each line at\n" +
			"once, after the name of its host.\n\n" +
			"--json writes an array with an object for each host: host, status, stdout, stderr,\n" +
			"and error in place of a status. Text that is not UTF-8 is in stdoutBase64 or\n" +
			"stderrBase64; stdoutCut and stderrCut count bytes that are left out.\n\n" +
			"Exit status: the largest of all hosts. A host that cannot be reached, or is lost,\n" +
			"counts with 125; one where --max-time ran out with 124; 126 and 127 as in a shell.\n" +
			"130 after Ctrl-C, 2 for wrong flags.",
		Flags: targetFlags(jsonFlag(),
			&cli.BoolFlag{Name: "stream", Usage: "print each line at once, after the name of its host"},
			&cli.StringSliceFlag{Name: "env", Usage: "give the command `NAME[=VALUE]`; repeatable. Other users of this machine see a VALUE in its list of processes: NAME alone, and --env-file, show none"},
			&cli.StringSliceFlag{Name: "env-file", Usage: "give the command the variables of `FILE`; repeatable"},
			&cli.StringFlag{Name: "chdir", Usage: "`FOLDER` on the hosts to run in, instead of the home"},
			&cli.StringFlag{Name: "setup", Usage: "shell `COMMAND` to run before the command, such as 'source venv/bin/activate'"},
			&cli.StringFlag{Name: "path", Usage: "`FOLDERS` to put before the hosts' PATH"},
			&cli.DurationFlag{Name: "max-time", Usage: "end the command after `TIME`"},
			&cli.DurationFlag{Name: "lease", Value: jobs.DefaultLease, Usage: "a host ends the command `TIME` after it last heard plx"},
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
