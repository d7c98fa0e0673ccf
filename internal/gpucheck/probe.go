package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/plx-run/plx/gpuprobe"
)

// shell runs gpuprobe's script on this machine, and keeps what it prints.
type shell struct{ said bytes.Buffer }

func (s *shell) Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, io.MultiWriter(stdout, &s.said), stderr
	cmd.WaitDelay = 2 * time.Second // a tool that the kernel holds
	return cmd.Run()
}

// probe keeps nvidia-smi's answers, and wants gpuprobe to find a GPU in them.
func probe(ctx context.Context, _ *folder, r *record) (string, error) {
	s := &shell{}
	report, err := gpuprobe.Probe(ctx, s, gpuprobe.Options{})
	r.answered(s.said.String())
	if err != nil {
		return "", err
	}
	switch {
	case report.GPUTool == gpuprobe.ToolNone:
		return "", fmt.Errorf("this machine has no nvidia-smi: %w", errAbsent)
	case report.GPUError != "" || len(report.GPUs) == 0:
		return "", fmt.Errorf("gpuprobe found %d GPUs: %s", len(report.GPUs), report.GPUError)
	}
	text := fmt.Sprintf("%d GPUs, driver %s", len(report.GPUs), report.Driver)
	for _, g := range report.GPUs {
		text += fmt.Sprintf("; %d: %s, %d MiB, %s", g.Index, g.Name, g.MemoryTotalMiB, g.UsedBy())
	}
	return text, nil
}
