//go:build linux

package jobfolder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
)

// Env fails if the job's virtual environment is missing, so that no task runs
// with another interpreter.
func TestEnv(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	if _, err := Env(&protocol.Venv{Folder: "../x"}); err == nil {
		t.Error("a name that leads out was accepted")
	}
	if _, err := Env(&protocol.Venv{Folder: "abc"}); err == nil || !strings.Contains(err.Error(), "the job's virtual environment is not on this host") {
		t.Errorf("an environment that is not there: %v", err)
	}
	want := filepath.Join(os.Getenv("HOME"), ".plx", "envs", "abc")
	if err := os.MkdirAll(filepath.Join(want, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if dir, err := Env(&protocol.Venv{Folder: "abc"}); dir != want || err != nil {
		t.Errorf("%s, %v", dir, err)
	}
}
