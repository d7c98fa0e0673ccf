package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// spawn starts the guardian in a session of its own, with nothing of ours open
// but the two pipes and its log.
func spawn(ctx context.Context, f folder, detached bool, spec, ready *os.File) (*exec.Cmd, error) {
	output, err := os.OpenFile(f.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close() // the guardian has its own
	argv := []string{self, "agent", "guardian", string(f)}
	if detached {
		if scope := scope(ctx); scope != nil {
			if argv[0], err = os.Executable(); err != nil {
				return nil, err
			}
			argv = append(scope, argv...)
		}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	if argv[0] == self {
		cmd.Args[0] = "plx"
	}
	cmd.Dir = "/"
	cmd.Env = agentEnviron(os.Environ(), f)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{spec, ready} // specFD, readyFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guardian: %w", err)
	}
	return cmd, nil
}

// probing bounds the question whether the user's systemd can hold a job.
const probing = 2 * time.Second

// scope returns the command line that puts a program into a scope of the
// user's systemd, where logind does not kill it when the login ends; nil where
// that does not work. systemd-run becomes the program, which must keep its
// descriptors.
func scope(ctx context.Context) []string {
	path, err := exec.LookPath("systemd-run")
	if err != nil || os.Getenv("XDG_RUNTIME_DIR") == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probing)
	defer cancel()
	argv := []string{path, "--user", "--scope", "--quiet", "--collect", "--"}
	probe := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv):len(argv)], "/bin/sh", "-c", "test -e /proc/self/fd/3")...)
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil
	}
	defer null.Close()
	probe.ExtraFiles = []*os.File{null}
	probe.WaitDelay = probing
	if err := probe.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return argv
}
