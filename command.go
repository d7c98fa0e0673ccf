package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/logs/style"
)

// command holds the state of one run of plx.
type command struct {
	stdout, stderr *os.File
	code           int
	json           bool // true for plx launch --json, which prints events as JSON
	reported       bool // true if package launcher itself reports the end of the job
}

// ended is an error that only carries the exit status, because plx has already
// printed the cause.
type ended struct{ code int }

func (e *ended) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// signals returns a channel that receives the signals that end plx. Before
// this call, while plx reads flags and files, a signal kills plx as any
// program. If nohup ignores SIGHUP, it stays ignored.
func (c *command) signals() (<-chan os.Signal, func()) {
	sig := make(chan os.Signal, 4)
	handled := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		handled = append(handled, syscall.SIGHUP)
	}
	signal.Notify(sig, handled...)
	return sig, func() { signal.Stop(sig) }
}

// context returns a context that the first signal cancels. The cause of the
// context is an *ended with the exit status.
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

// terminal returns the properties of plx's outputs: terminal or not, width and
// colours.
func (c *command) terminal(ctx *cli.Context) console.Terminal {
	mode := ctx.String("color")
	t := console.Terminal{Stdout: c.stdout, Stderr: c.stderr,
		StdoutTTY: term.IsTerminal(int(c.stdout.Fd())), StderrTTY: term.IsTerminal(int(c.stderr.Fd()))}
	if t.StdoutTTY {
		t.Width, _, _ = term.GetSize(int(c.stdout.Fd())) // the width is 0 if it is unknown
	}
	t.Dumb, t.Sixteen = os.Getenv("TERM") == "dumb", style.Sixteen(os.Environ())
	t.StdoutColour = style.UseColour(mode, t.StdoutTTY, os.Getenv)
	t.StderrColour = style.UseColour(mode, t.StderrTTY, os.Getenv)
	t.NoStatus = ctx.Bool("no-status")
	return t
}

// query returns the job that the first argument names, and the hosts that the
// flags choose.
func (c *command) query(ctx *cli.Context) (jobs.Query, error) {
	r, err := reach(ctx)
	q := jobs.Query{Job: ctx.Args().First(), Reach: r, OnHosts: typed(ctx, "host") || typed(ctx, "hosts"), Terminal: c.terminal(ctx)}
	if typed(ctx, "host") && err == nil {
		q.Named, err = hostNames(ctx, r.Hosts)
	}
	return q, err
}

// onJob returns the action of a command about one job. The action first calls
// check for the arguments, and then work with the job. The first signal
// cancels the context of work.
func (c *command) onJob(check func(*cli.Context) error, work func(ctx context.Context, q jobs.Query, flags *cli.Context) error) cli.ActionFunc {
	return func(flags *cli.Context) error {
		if err := check(flags); err != nil {
			return err
		}
		q, err := c.query(flags)
		if err != nil {
			return err
		}
		ctx, cancel := c.context()
		defer cancel()
		return work(ctx, q, flags)
	}
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
