//go:build linux

package watchdog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/launcher/protocol"
)

// starting bounds the agent's start.
const starting = 30 * time.Second

// Start starts the watchdog, hands the specification on and waits until the
// supervisor is ready. It returns the name of the agent's local socket.
func Start(ctx context.Context, f jobfolder.Folder, spec protocol.Spec) (socket string, err error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("encode the job's specification: %w", err)
	}
	specRead, specWrite, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("start the agent: %w", err)
	}
	defer specWrite.Close() // a pipe has no data to lose
	readyRead, readyWrite, err := os.Pipe()
	if err != nil {
		return "", errors.Join(fmt.Errorf("start the agent: %w", err), specRead.Close())
	}
	defer readyRead.Close() // only read
	watchdog, err := spawn(ctx, f, spec.Detached, specRead, readyWrite)
	specRead.Close()   // the watchdog has its own
	readyWrite.Close() // the watchdog has its own
	if err != nil {
		return "", fmt.Errorf("start the agent: %w", err)
	}
	deadline := time.Now().Add(starting)
	specWrite.SetDeadline(deadline) // pipes have deadlines
	readyRead.SetDeadline(deadline)
	_, wrote := specWrite.Write(text)
	specWrite.Close() // the supervisor reads to the end
	var r Readiness
	err = json.NewDecoder(readyRead).Decode(&r)
	if err == nil && r.Error == "" {
		return r.Socket, watchdog.Process.Release()
	}
	_ = watchdog.Process.Kill() // its supervisor, if any, sees that and ends
	_ = watchdog.Wait()
	if r.Error != "" {
		return "", fmt.Errorf("start the agent: %s", r.Error)
	}
	return "", fmt.Errorf("start the agent: %w; see %s", errors.Join(err, wrote), f.Log())
}

// self is this very program, also after its file was replaced or removed.
const self = "/proc/self/exe"

// spawn starts the watchdog in a session of its own. It inherits only the two
// pipes and its log.
func spawn(ctx context.Context, f jobfolder.Folder, detached bool, spec, ready *os.File) (*exec.Cmd, error) {
	output, err := os.OpenFile(f.Log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close() // the watchdog has its own
	argv := []string{self, "agent", "watchdog", string(f)}
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
	cmd.Env = program.AgentEnvironment(os.Environ(), f.Job(), f.Name())
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{spec, ready} // specFD, readyFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return cmd, nil
}

// probing bounds the question whether the user's systemd can hold a job.
const probing = 2 * time.Second

// scope returns the command line that puts a program into a scope of the user's
// systemd, or nil if that does not work. In a scope, logind does not kill the program
// when the login ends. systemd-run executes the program in its own place; scope
// makes sure that the program keeps its descriptors.
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
	defer null.Close() // only read
	probe.ExtraFiles = []*os.File{null}
	probe.WaitDelay = probing
	if err := probe.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return argv
}
