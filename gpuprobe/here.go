package gpuprobe

import (
	"context"
	"io"
	"os/exec"
)

// Here asks the host on which this process runs. After an error the Answer has what came before it.
func Here(ctx context.Context, o Options) (Answer, error) { return ask(ctx, localShell{}, "", o) }

// localShell runs scripts on this host.
type localShell struct{}

func (localShell) Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.WaitDelay = endGrace // a stuck nvidia-smi may hold the output open
	return cmd.Run()
}
