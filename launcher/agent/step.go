//go:build linux

package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"

	"golang.org/x/sys/unix"
)

// outlive runs an SSH server in a Slurm job step. Slurm kills all processes of
// a step when this process, the step's first, ends. Agents that the server
// starts must outlive the SSH connection, so outlive returns only after all
// processes in the step have ended. This process ignores Slurm's SIGTERM,
// which the agents handle.
func outlive(server *exec.Cmd, in io.Reader, out, complaints io.Writer) error {
	ignoreSIGTERM()
	for _, name := range ranks {
		os.Unsetenv(name) // Unsetenv fails only for invalid names
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of orphaned processes: %w", err)
	}
	server.Args[0] = "plx"
	server.Stdin, server.Stdout, server.Stderr = in, out, complaints
	if err := server.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	for _, own := range []*os.File{os.Stdin, os.Stdout} { // close this process's copies, so that the launcher sees end of file when the server ends
		own.Close() // ignore the error: no data is buffered
	}
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // an error other than EINTR means that no child process is left
			return nil
		}
	}
}

// ranks are environment variables that Slurm sets for this process, the only
// task of its step. Training programs would mistake them for the ranks of
// their own job.
var ranks = []string{"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_GTIDS",
	"SLURM_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"}

// ignoreSIGTERM makes this process ignore SIGTERM. Child processes still react
// to SIGTERM.
func ignoreSIGTERM() {
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM)
}
