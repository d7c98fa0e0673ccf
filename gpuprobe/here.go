package gpuprobe

import (
	"context"
	"io"
	"os/exec"
)

// Local probes the host on which this process runs. If it returns an error, the
// Output contains the output that came before the error.
func Local(ctx context.Context, o Options) (Output, error) { return ask(ctx, localShell{}, "", o) }

// localShell is a Runner that runs the script on this host.
type localShell struct{}

func (localShell) Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.WaitDelay = endGrace // A hanging nvidia-smi may keep the output pipe open, so wait only endGrace for the end of the output.
	return cmd.Run()
}
