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

// outlive runs the server of a step of Slurm. Slurm kills what is left in a step when its
// first process ends, so this process stays until all have ended that were started in it:
// agents outlive the connection that started them. They heed Slurm's SIGTERM; this process
// and the server end with the connection.
func outlive(server *exec.Cmd, in io.Reader, out, complaints io.Writer) error {
	heedNoTerm()
	for _, name := range ranks {
		os.Unsetenv(name) // fails for no valid name
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt what commands leave: %w", err)
	}
	server.Args[0] = "plx"
	server.Stdin, server.Stdout, server.Stderr = in, out, complaints
	if err := server.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	for _, own := range []*os.File{os.Stdin, os.Stdout} { // the server has them: whoever reads sees its end
		own.Close() // nothing is buffered
	}
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // no child is left
			return nil
		}
	}
}

// ranks are variables by which programs take the step for their job, which has one task.
var ranks = []string{"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_GTIDS",
	"SLURM_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"}

// heedNoTerm makes SIGTERM do nothing in this process. Its children are not affected.
func heedNoTerm() {
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM)
}
