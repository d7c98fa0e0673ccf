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

// interpreter is Debian's Python, for which the package python3-torch installs
// PyTorch.
const interpreter = "/usr/bin/python3"

// patience is the timeout of each child process.
const patience = 5 * time.Minute

//go:embed twin.py
var library []byte

// importTorch checks once whether PyTorch can be imported, which takes
// seconds.
var importTorch = sync.OnceValue(func() error {
	_, err := run(context.Background(), nil, interpreter, "-c", "import torch")
	return err
})

// python runs a Python script, which can import twin.py.
func python(t *testing.T, script string, arguments ...string) {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "twin.py"), library, 0o600); err != nil {
		t.Fatal(err)
	}
	// With several threads, PyTorch would add numbers in varying order, and
	// the results would not be reproducible.
	environment := []string{"PYTHONPATH=" + folder, "PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1"}
	out, err := run(t.Context(), environment, interpreter, append([]string{script}, arguments...)...)
	if err != nil {
		t.Fatal(err)
	}
	if len(out) > 0 {
		t.Logf("%s prints:\n%s", script, out)
	}
}

// run runs a program and returns its output.
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
