package torchtwin

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// interpreter is Debian's, which has python3-torch.
const interpreter = "/usr/bin/python3"

// patience bounds each process.
const patience = 5 * time.Minute

//go:embed twin.py
var library []byte

// importTorch imports PyTorch, which takes seconds, once.
var importTorch = sync.OnceValue(func() error {
	_, err := run(context.Background(), nil, interpreter, "-c", "import torch")
	return err
})

// python runs a script, which imports twin.py.
func python(t *testing.T, script string, arguments ...string) {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "twin.py"), library, 0o600); err != nil {
		t.Fatal(err)
	}
	// One thread adds in one order.
	environment := []string{"PYTHONPATH=" + folder, "PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1"}
	out, err := run(t.Context(), environment, interpreter, append([]string{script}, arguments...)...)
	if err != nil {
		t.Fatal(err)
	}
	if len(out) > 0 {
		t.Logf("%s prints:\n%s", script, out)
	}
}

// run runs a program and returns what it prints.
func run(ctx context.Context, environment []string, program string, arguments ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, arguments...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s %v: %w\n%s", program, arguments, err, out)
	}
	return out, nil
}
