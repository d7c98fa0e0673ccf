package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// Main runs "plx agent" with args, which begin with the subcommand, and
// returns the exit status. Errors are one line on stderr. It marks every
// descriptor from 3 up close-on-exec: it is to be called by a process that is
// nothing but an agent.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		return fail(stderr, usage("a subcommand is missing"))
	}
	if err := keepToOurselves(); err != nil {
		return fail(stderr, err)
	}
	s := streams{in: stdin, out: stdout, err: stderr}
	run, ok := subcommands[args[0]]
	if !ok {
		return fail(stderr, usage(fmt.Sprintf("there is no subcommand %q", args[0])))
	}
	return fail(stderr, run(ctx, args[1:], s))
}

// streams are the standard streams of a subcommand.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

var subcommands map[string]func(context.Context, []string, streams) error

func init() {
	subcommands = map[string]func(context.Context, []string, streams) error{
		"start":      start,
		"connect":    connect,
		"guardian":   guardian,
		"supervisor": supervisorMain,
		"logs":       serveLogs,
		"claim":      printClaim,
		"fetch":      fetch,
		"state":      printState,
		"jobs":       printJobs,
		"reap":       reap,
		"prune":      prune,
	}
}

// coded is an error with an exit status of its own.
type coded struct {
	code int
	error
}

func (c coded) Unwrap() error { return c.error }

func usage(problem string) error {
	return coded{codeUsage, errors.New(problem + ", want start, connect JOB FOLDER, logs JOB FOLDER, claim NAME, fetch, " +
		"state JOB FOLDER, jobs, reap JOB [FOLDER] or prune [--older AGE]")}
}

// fail prints err in one line and returns the exit status it stands for.
func fail(stderr io.Writer, err error) int {
	if err == nil {
		return 0
	}
	// There is nobody to tell of a standard error that cannot be written.
	fmt.Fprintln(stderr, "plx agent: "+oneLine(err.Error()))
	if c := (coded{}); errors.As(err, &c) {
		return c.code
	}
	return codeFailed
}

func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// keepToOurselves marks every descriptor but the standard ones close-on-exec,
// whoever we inherited it from: a task that kept one open would keep somebody
// waiting for its end.
func keepToOurselves() error {
	err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	fds, err := openDescriptors() // kernels before 5.11
	if err != nil {
		return fmt.Errorf("list open descriptors: %w", err)
	}
	for _, fd := range fds {
		if fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
