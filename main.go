// Command plx launches a program on many machines over SSH, and trains models
// there. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/plx-run/plx/launcher"
	"github.com/plx-run/plx/launcher/agent"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/limits"
	"github.com/plx-run/plx/launcher/ssh/sshconfig"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/logs/style"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(agent.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}

// run runs one plx command line and returns its exit status.
func run(args []string, stdout, stderr *os.File) int {
	if os.Getenv("HOME") == "" { // HOME is empty in a systemd unit, for example.
		// If HOME stays empty, the code that needs a home directory reports
		// the error.
		_ = os.Setenv("HOME", sshconfig.PasswordHome())
	}
	c := &command{stdout: stdout, stderr: stderr}
	app := c.app()
	if len(args) > 1 && args[1] == "__complete" {
		for _, word := range complete(app, args[2:]) {
			fmt.Fprintln(stdout, logs.Escape(word)) // ignore the error of a shell that no longer reads the candidates
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
	err = withSource(app, err)
	if !c.reported && (c.json || asksEvents(app, args)) {
		launcher.EndEvent(console.Terminal{Stdout: stdout, Stderr: stderr}, err)
	}
	c.printError(args, err)
	return exit.Code(err)
}

// begin prepares each command that works on hosts: it checks resource limits,
// and applies the user's defaults (PLX_ variables and the configuration file).
func begin(ctx *cli.Context) error {
	if err := limits.Check(); err != nil {
		return exit.WithHint(fmt.Errorf("cannot start: %w", err), "raise the limit in this shell, or in the file that sets it")
	}
	return setDefaults(ctx)
}

// printError prints err and its hint to stderr. It looks for --color among all
// arguments itself, because err may come from parsing the flags.
func (c *command) printError(args []string, err error) {
	mode := os.Getenv("PLX_COLOR")
	for i, arg := range args {
		if value, found := strings.CutPrefix(arg, "--color"); found && value == "" && i+1 < len(args) {
			mode = args[i+1]
		} else if found {
			mode = strings.TrimPrefix(value, "=")
		}
	}
	colour := style.UseColour(mode, term.IsTerminal(int(c.stderr.Fd())), os.Getenv)
	console.NewPrinter(console.Terminal{Stdout: c.stdout, Stderr: c.stderr, StderrColour: colour}).Error(err)
}

func (c *command) app() *cli.App {
	// The version flag has no short form -v, which means --verbose for plx
	// launch.
	cli.VersionFlag = &cli.BoolFlag{Name: "version", Usage: "print the version", DisableDefaultText: true}
	cli.VersionPrinter = func(ctx *cli.Context) { fmt.Fprintln(ctx.App.Writer, versionLine()) }
	cli.HelpPrinter = printHelp
	work := []*cli.Command{
		c.launchCommand(), c.execCommand(), c.probeCommand(), c.doctorCommand(), c.logsCommand(), c.jobsCommand(), c.statusCommand(), c.topCommand(), c.metricsCommand(), c.reportCommand(), c.stacksCommand(),
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
		DisableSliceFlagSeparator: true, // Do not split flag values at commas: the value of a flag may contain them.
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              wrongUse,
		Action:                    unknownCommand,
		Commands:                  slices.Concat(work, about),
		Flags:                     []cli.Flag{cli.HelpFlag}, // Name the help flag here, because package cli adds it only to a program without a command named help.
		UsageText:                 "plx COMMAND --help describes a command; plx config shows the values of all flags.",
		Description:               exitCodes,
	}
	for _, sub := range app.Commands {
		sub.OnUsageError, sub.HideHelpCommand = wrongUse, true
	}
	for _, sub := range work {
		sub.Before = begin
	}
	return app
}
