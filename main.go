// Command plx launches one program on many machines over SSH and trains
// models there. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/launcher/agent"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
)

// A release sets these by flags of the linker. Without them commit and date are those that
// go build has recorded, if it has.
var (
	version = "dev"
	commit  = ""
	date    = "" // of the commit, RFC 3339
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
	complain(stderr, err)
	return exit.Code(err)
}

// ended carries the exit status of a job whose end was printed already.
type ended struct{ code int }

func (e *ended) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// complain prints an error, a line for each host, and then the hint.
func complain(w io.Writer, err error) {
	for _, line := range console.ErrorLines(err) {
		fmt.Fprintf(w, "plx: %s\n", line)
	}
}

// command is one invocation.
type command struct {
	stdout, stderr *os.File
	code           int
}

// signals delivers the user's signals from now on. Before, while flags and files are
// read, a signal ends plx as it ends any program. Under nohup(1), SIGHUP stays ignored.
func (c *command) signals() (<-chan os.Signal, func()) {
	sig := make(chan os.Signal, 4)
	heed := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		heed = append(heed, syscall.SIGHUP)
	}
	signal.Notify(sig, heed...)
	return sig, func() { signal.Stop(sig) }
}

func (c *command) app() *cli.App {
	cli.VersionFlag = &cli.BoolFlag{Name: "version", Usage: "print the version", DisableDefaultText: true} // -v is that of launch
	cli.VersionPrinter = func(ctx *cli.Context) { fmt.Fprintln(ctx.App.Writer, versionLine()) }
	cli.HelpPrinter = printHelp
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
		Commands: []*cli.Command{
			c.launchCommand(), c.execCommand(), c.probeCommand(), c.doctorCommand(), c.logsCommand(), c.jobsCommand(), c.statusCommand(), c.stacksCommand(),
			c.attachCommand(), c.scaleCommand(), c.stopCommand(), c.fetchCommand(), c.pruneCommand(),
			configCommand(), completionCommand(), helpCommand(), versionCommand(), manCommand(),
		},
		Flags:       []cli.Flag{cli.HelpFlag}, // the library adds it only where no command is named help
		Description: exitCodes,
	}
	for _, sub := range app.Commands {
		sub.OnUsageError, sub.HideHelpCommand = wrongUse, true
		if !slices.Contains([]string{"config", "completion", "help", "version"}, sub.Name) {
			sub.Before = setDefaults
		}
	}
	return app
}

const exitCodes = `Exit status:
   0          the job's workers all exited with 0
   N          the status of the task that failed first, 128+signal if a signal
              ended it; with --max-restarts, in the last generation
   2          wrong use: flags, or a resource file that is missing or wrong
   69         a worker of plx's trainer cannot use the GPU that it was given
   124        --max-time ran out
   125        plx failed: a host or GPU is missing, a host key was refused,
              the newest checkpoint could not be fetched (--fetch)
   126, 127   the program is not executable, or was not found
   130        Ctrl-C (143: plx stop, SIGTERM or a preempted host;
              141: the reader of plx's output is gone)`

// context returns a context that ends at the first signal. Its cause has the exit
// status.
func (c *command) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals, stop := c.signals()
	done := make(chan struct{})
	go func() {
		select {
		case sig := <-signals:
			code := 130
			if n, ok := sig.(syscall.Signal); ok && n != syscall.SIGINT {
				code = 128 + int(n)
			}
			cancel(&ended{code})
		case <-done:
		}
	}()
	return ctx, func() { stop(); close(done); cancel(nil) }
}
