package main

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/gpuprobe"
)

// probe keeps nvidia-smi's answers, and wants gpuprobe to find a GPU in them.
func probe(ctx context.Context, _ *folder, r *record) (string, error) {
	answer, err := gpuprobe.Here(ctx, gpuprobe.Options{})
	r.answered(answer.Text)
	if err != nil {
		return "", err
	}
	report := answer.Report()
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
