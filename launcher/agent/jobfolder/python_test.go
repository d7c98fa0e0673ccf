//go:build linux

package jobfolder

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/cluster"
)

// The module for Python leaves no trace in what a program sees, and makes way for a
// sitecustomize of the user.
func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	f := StacksOf(Folder(t.TempDir()))
	if err := f.Prepare(); err != nil {
		t.Fatal(err)
	}
	users, broken := t.TempDir(), t.TempDir()
	for dir, text := range map[string]string{users: "print('users own')\n", broken: "import nowhere\n"} {
		if err := os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stacks := f.PythonFile(cluster.Chief, 0)
	const program = "import os, sys; print(sys.argv[1] in sys.path, flush=True); os.kill(os.getpid(), 58)"
	run := func(path, file string) (out string, written bool) {
		t.Helper()
		if err := os.RemoveAll(stacks); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(python, "-c", program, f.Python())
		cmd.Env = append(os.Environ(), "PYTHONPATH="+f.Python()+path, "PLX_PYTHON_STACKS="+file)
		text, _ := cmd.CombinedOutput() // the signal ends a program that is not prepared
		content, err := os.ReadFile(stacks)
		return string(text), err == nil && strings.Contains(string(content), `File "<string>", line 1 in <module>`)
	}
	if out, written := run("", stacks); out != "False\n" || !written {
		t.Errorf("%q, stacks %t", out, written)
	}
	if out, written := run(":"+users, stacks); out != "users own\nFalse\n" || !written {
		t.Errorf("with the user's own: %q, stacks %t", out, written)
	}
	if out, written := run(":"+broken, stacks); !strings.Contains(out, "nowhere") || !strings.HasSuffix(out, "False\n") || !written {
		t.Errorf("with a broken one of the user's: %q, stacks %t", out, written)
	}
	if out, _ := run("", "/nowhere/file"); out != "False\n" {
		t.Errorf("without a file for stacks: %q", out)
	}
}
