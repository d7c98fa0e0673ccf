package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

//go:embed torch.py
var torchScript string

// torchStatus is the script's exit status without PyTorch or without its GPU.
const torchStatus = 77

// torch measures PyTorch's times for the same work, where python3 has it.
func torch(ctx context.Context, f *folder, r *record) (string, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", fmt.Errorf("this machine has no python3: %w", errAbsent)
	}
	all, err := json.Marshal(slices.Concat(moves(f.quick), sizes(f.quick)))
	if err != nil {
		return "", err
	}
	e := f.exec(ctx, strings.NewReader(torchScript), python, "-", string(all))
	n, err := r.addTorch(e.out)
	var status *exec.ExitError
	if errors.As(e.err, &status) && status.ExitCode() == torchStatus {
		return "", fmt.Errorf("%s: %w", strings.TrimSpace(e.all), errAbsent)
	}
	if err := errors.Join(e.failed("PyTorch"), err); err != nil {
		return "", err
	}
	return fmt.Sprintf("PyTorch %s: %d measured", r.Torch, n), nil
}
