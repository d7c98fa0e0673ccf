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

// command is one invocation.
type command struct {
	stdout, stderr *os.File
	code           int
	json           bool // a launch writes events
	told           bool // package launcher has told of the launch's end
}

// ended carries the exit status of a job whose end was printed already.
type ended struct{ code int }

func (e *ended) Error() string { return fmt.Sprintf("exit status %d", e.code) }

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

// terminal describes plx's outputs.
func (c *command) terminal(ctx *cli.Context) console.Terminal {
	mode := ctx.String("color")
	t := console.Terminal{Stdout: c.stdout, Stderr: c.stderr,
		StdoutTTY: term.IsTerminal(int(c.stdout.Fd())), StderrTTY: term.IsTerminal(int(c.stderr.Fd()))}
	if t.StdoutTTY {
		t.Width, _, _ = term.GetSize(int(c.stdout.Fd())) // 0 if it is not known
	}
	t.Dumb, t.Sixteen = os.Getenv("TERM") == "dumb", style.Sixteen(os.Environ())
	t.StdoutColour = style.UseColour(mode, t.StdoutTTY, os.Getenv)
	t.StderrColour = style.UseColour(mode, t.StderrTTY, os.Getenv)
	t.NoStatus = ctx.Bool("no-status")
	return t
}

// query reads the first argument and the flags that name a job.
func (c *command) query(ctx *cli.Context) (jobs.Query, error) {
	r, err := reach(ctx)
	q := jobs.Query{Job: ctx.Args().First(), Reach: r, OnHosts: typed(ctx, "host") || typed(ctx, "hosts"), Terminal: c.terminal(ctx)}
	if typed(ctx, "host") && err == nil {
		q.Named, err = hostNames(ctx, r.Hosts)
	}
	return q, err
}

// onJob makes an action of work on the job that the arguments name, after a check of
// the arguments. The first signal interrupts the work.
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
