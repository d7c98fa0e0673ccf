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

// Build builds a package of the working directory's module, static.
func Build(ctx context.Context, to, pkg string, flags ...string) error {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-trimpath", "-o", to}, flags...), pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	return nil
}

// Follow runs a program to its end and tells each line that it prints, on standard
// error too where cmd has no place for that. When tell has enough or fails, the program
// is interrupted, as by Ctrl-C, and how it ends does not matter.
func Follow(cmd *exec.Cmd, tell func(line string) (enough bool, err error)) error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close() // only read
	if cmd.Stdout = in; cmd.Stderr == nil {
		cmd.Stderr = in
	}
	if err := errors.Join(cmd.Start(), in.Close()); err != nil {
		return err
	}
	var last []string // for a failure
	stopped, failed := false, error(nil)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() { // to the end: a program whose output nobody reads stands still
		last = append(last[max(0, len(last)-11):], lines.Text())
		enough, err := tell(lines.Text())
		if failed = errors.Join(failed, err); !stopped && (enough || err != nil) {
			stopped = true
			_ = cmd.Process.Signal(os.Interrupt) // it may have ended by itself
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
