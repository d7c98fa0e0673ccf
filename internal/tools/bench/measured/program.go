package measured

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Build builds the package pkg, which belongs to the module of the working
// directory, as a static binary at the path to.
func Build(ctx context.Context, to, pkg string, flags ...string) error {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-trimpath", "-o", to}, flags...), pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	return nil
}

// Follow runs a program and calls tell with each line of its standard output.
// If cmd.Stderr is nil, it also passes the lines of standard error. When tell
// returns enough or an error, Follow interrupts the program like Ctrl-C and
// ignores the program's exit status.
func Follow(cmd *exec.Cmd, tell func(line string) (enough bool, err error)) error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close() // opened for reading: an error of Close does not matter
	if cmd.Stdout = in; cmd.Stderr == nil {
		cmd.Stderr = in
	}
	if err := errors.Join(cmd.Start(), in.Close()); err != nil {
		return err
	}
	var last []string // the last 12 lines, for an error message
	stopped, failed := false, error(nil)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() { // The loop reads up to the end even after tell has returned enough, because a program blocks if its output is not read.
		last = append(last[max(0, len(last)-11):], lines.Text())
		enough, err := tell(lines.Text())
		if failed = errors.Join(failed, err); !stopped && (enough || err != nil) {
			stopped = true
			_ = cmd.Process.Signal(os.Interrupt) // fails if the program has already ended
			defer time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
		}
	}
	ended := errors.Join(lines.Err(), cmd.Wait())
	if stopped {
		return failed
	}
	if ended != nil {
		return fmt.Errorf("%w: %s", ended, strings.Join(last, " / "))
	}
	return nil
}
