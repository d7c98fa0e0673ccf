//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/supervisor"
	"github.com/plx-run/plx/launcher/limits"
	"github.com/plx-run/plx/launcher/sshserver"
	"github.com/plx-run/plx/trainer/cluster"
)

// Main runs "plx agent" with args, which begin with the command, and returns the
// exit status. It prints an error as one line on stderr. The process must be nothing
// but an agent: Main marks every descriptor from 3 up close-on-exec, except for the
// command that becomes a task.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		return fail(stderr, usage("a subcommand is missing"))
	}
	switch args[0] {
	case "start", "serve", "step": // what a login shell runs, and no task
		if err := limits.Check(); err != nil {
			return fail(stderr, err)
		}
	}
	if args[0] != becoming { // a task inherits its socket, its control channel and the GPU locks
		if err := closeOnExec(); err != nil {
			return fail(stderr, err)
		}
	}
	c, ok := commands()[args[0]]
	switch {
	case !ok:
		return fail(stderr, usage(fmt.Sprintf("there is no subcommand %q", args[0])))
	case c.args != anyArgs && len(args)-1 != c.args:
		return fail(stderr, usage(fmt.Sprintf("%s takes %s", args[0], c.takes)))
	}
	return fail(stderr, c.run(ctx, args[1:], streams{in: stdin, out: stdout, err: stderr}))
}

// streams are the standard streams of a command.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// command is a subcommand.
type command struct {
	args  int    // how many arguments it takes; anyArgs: it looks itself
	takes string // what they are
	run   func(context.Context, []string, streams) error
}

const anyArgs = -1

func commands() map[string]command {
	return map[string]command{
		"start":      {0, "no arguments", start},
		"supervisor": {2, "the path of a job's folder and a number of GPU locks", supervise},
		"logs":       {2, "a job and a folder", printLogs},
		"exec":       {0, "no arguments", execute},
		"serve":      {1, "the word that begins its answer", serve},
		"step":       {1, "the word that begins its answer", step},
		"gc":         {0, "no arguments", gc},
		becoming:     {anyArgs, "", become},
	}
}

// serve is "agent serve WORD": an SSH server on its standard input and output, for a
// launcher that reached the host by a command of the user's.
func serve(_ context.Context, args []string, std streams) error {
	if cluster.InStep() {
		heedNoTerm()
	}
	return sshserver.ServePipe(std.in, std.out, args[0])
}

// step is "agent step WORD": "agent serve WORD" in a step of Slurm, which lasts until all that
// was started in it has ended.
func step(_ context.Context, args []string, std streams) error {
	return outlive(exec.Command("/proc/self/exe", "agent", "serve", args[0]), std.in, std.out, std.err)
}

// supervise is "agent supervisor FOLDER LOCKS": the path of a job's folder, and the number of GPU
// locks that the process inherits.
func supervise(_ context.Context, args []string, _ streams) error {
	locks, err := strconv.Atoi(args[1])
	if err != nil || locks < 0 {
		return usage("want the number of GPU locks")
	}
	return supervisor.Run(jobfolder.Folder(args[0]), locks)
}

// coded is an error with an exit status of its own.
type coded struct {
	code int // plx's exit status
	error
}

func (c coded) Unwrap() error { return c.error }

func usage(problem string) error {
	return coded{codeUsage, errors.New(problem + "; package launcher/agent describes the subcommands")}
}

// fail prints err in one line and returns the exit status that it stands for.
func fail(stderr io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if own := exited(0); errors.As(err, &own) {
		return int(own)
	}
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	fmt.Fprintln(stderr, "plx agent: "+strings.Join(lines, "; ")) // if that fails, nobody can be told
	if c := (coded{}); errors.As(err, &c) {
		return c.code
	}
	return codeFailed
}

// closeOnExec marks every inherited descriptor but the standard ones. A task that
// kept one open would delay whoever waits for its end.
func closeOnExec() error {
	if unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	entries, err := os.ReadDir("/proc/self/fd") // kernels before 5.11
	if err != nil {
		return fmt.Errorf("list open descriptors: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
