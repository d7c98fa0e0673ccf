// Command plx launches one program on many machines over SSH and trains
// models there. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/agent"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(agent.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}

// run runs one command line with the given streams, and returns the exit status.
func run(args []string, stdout, stderr *os.File) int {
	c := &command{stdout: stdout, stderr: stderr}
	app := c.app()
	if len(args) > 1 && args[1] == "__complete" {
		for _, word := range complete(app, args[2:]) {
			fmt.Fprintln(stdout, word) // a shell that no longer reads wants none
		}
		return 0
	}
	err := app.Run(flagsFirst(app, args))
	if err == nil {
		return c.code
	}
	var verdict *ended
	if errors.As(err, &verdict) {
		return verdict.code
	}
	err = blamed(app, err)
	complain(stderr, err)
	return exit.Code(err)
}

// complain prints an error, a line for each host, and then the hint.
func complain(w io.Writer, err error) {
	for _, line := range console.ErrorLines(err) {
		fmt.Fprintf(w, "plx: %s\n", line)
	}
}

func (c *command) app() *cli.App {
	cli.VersionFlag = &cli.BoolFlag{Name: "version", Usage: "print the version", DisableDefaultText: true} // -v is that of launch
	cli.VersionPrinter = func(ctx *cli.Context) { fmt.Fprintln(ctx.App.Writer, versionLine()) }
	cli.HelpPrinter = printHelp
	work := []*cli.Command{
		c.launchCommand(), c.execCommand(), c.probeCommand(), c.doctorCommand(), c.logsCommand(), c.jobsCommand(), c.statusCommand(), c.stacksCommand(),
		c.attachCommand(), c.scaleCommand(), c.stopCommand(), c.fetchCommand(), c.pruneCommand(),
	}
	about := []*cli.Command{configCommand(), completionCommand(), helpCommand(), versionCommand(), manCommand()}
	app := &cli.App{
		Name:                      "plx",
		Usage:                     "launch one program on many machines over SSH, and train there",
		Version:                   version,
		Writer:                    c.stdout,
		ErrWriter:                 c.stderr,
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true, // values may hold commas
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              wrongUse,
		Action:                    unknownCommand,
		Commands:                  slices.Concat(work, about),
		Flags:                     []cli.Flag{cli.HelpFlag}, // the library adds it only where no command is named help
		UsageText:                 "plx COMMAND --help tells what the command takes, plx config which values flags have.",
		Description:               exitCodes,
	}
	for _, sub := range app.Commands {
		sub.OnUsageError, sub.HideHelpCommand = wrongUse, true
	}
	for _, sub := range work {
		sub.Before = setDefaults
	}
	return app
}
