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

// Main runs "plx agent" with args, which begin with the subcommand, and
// returns the exit status. It prints an error as one line on stderr. Main
// marks every file descriptor from 3 up close-on-exec, so the process must be
// used for nothing else. The subcommand "become" is an exception: it keeps the
// descriptors for the task.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		return fail(stderr, usage("a subcommand is missing"))
	}
	switch args[0] {
	case "start", "serve", "step": // raise the limit of open files: a login shell started this process, and its limits may be too low
		if err := limits.Check(); err != nil {
			return fail(stderr, err)
		}
	}
	if args[0] != becomeName { // the subcommand "become" passes its socket, its control channel and the GPU locks on to the task, so it must not mark them close-on-exec
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

// streams are the standard streams of a subcommand.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// command describes a subcommand of "plx agent".
type command struct {
	args  int    // required number of arguments; with anyArgs, the subcommand checks them itself
	takes string // description of the arguments, for the error message
	run   func(context.Context, []string, streams) error
}

const anyArgs = -1

func commands() map[string]command {
	return map[string]command{
		"start":      {0, "no arguments", start},
		"supervisor": {2, "the path of a job's folder and a number of GPU locks", supervise},
		"logs":       {2, "a job and a folder", printLogs},
		"exec":       {0, "no arguments", execute},
		"serve":      {1, "the word to print first", serve},
		"step":       {1, "the word to print first", step},
		"gc":         {0, "no arguments", gc},
		becomeName:   {anyArgs, "", become},
	}
}

// serve is "agent serve WORD". It prints WORD, and is then an SSH server on
// its standard input and output. The launcher uses it on a host that it
// reaches by the user's own command instead of SSH.
func serve(_ context.Context, args []string, std streams) error {
	if cluster.InStep() {
		ignoreSIGTERM()
	}
	return sshserver.ServePipe(std.in, std.out, args[0])
}

// step is "agent step WORD": it runs "agent serve WORD" in a Slurm job step,
// and keeps the step alive until all processes started in it have ended.
func step(_ context.Context, args []string, std streams) error {
	return outlive(exec.Command("/proc/self/exe", "agent", "serve", args[0]), std.in, std.out, std.err)
}

// supervise is "agent supervisor FOLDER LOCKS". FOLDER is the path of a job's
// folder, LOCKS the number of GPU locks that the process inherits.
func supervise(_ context.Context, args []string, _ streams) error {
	locks, err := strconv.Atoi(args[1])
	if err != nil || locks < 0 {
		return usage("want the number of GPU locks")
	}
	return supervisor.Run(jobfolder.Folder(args[0]), locks)
}

// coded is an error that determines the exit status of the process.
type coded struct {
	code int // exit status of plx
	error
}

func (c coded) Unwrap() error { return c.error }

func usage(problem string) error {
	return coded{codeUsage, errors.New(problem + "; package launcher/agent describes the subcommands")}
}

// fail prints err as one line and returns the exit status for it.
func fail(stderr io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if own := exited(0); errors.As(err, &own) {
		return int(own)
	}
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	fmt.Fprintln(stderr, "plx agent: "+strings.Join(lines, "; ")) // a failed write to standard error cannot be reported anywhere
	if c := (coded{}); errors.As(err, &c) {
		return c.code
	}
	return codeFailed
}

// closeOnExec marks every inherited descriptor except the standard streams
// close-on-exec. If a task kept an inherited pipe open, its reader would not
// see end of file.
func closeOnExec() error {
	if unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	entries, err := os.ReadDir("/proc/self/fd") // kernels before 5.11 lack CLOSE_RANGE_CLOEXEC
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
