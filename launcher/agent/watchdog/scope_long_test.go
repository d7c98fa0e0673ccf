//go:build linux && long

package watchdog

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
)

// TestMain lets the test binary act as a process that enters a systemd scope
// and prints its control groups.
func TestMain(m *testing.M) {
	if os.Getenv("PLX_TEST_SCOPE") == "" {
		os.Exit(m.Run())
	}
	fmt.Println(EnterScope(context.Background(), "job"), os.Getpid())
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(text)
}

// The user's systemd, a real one, moves a process into a scope. The test needs
// root, for a mount namespace in which the machine seems to be booted by
// systemd.
func TestScope(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	enter := func(runtime string) string {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), "PLX_TEST_SCOPE=1", "XDG_RUNTIME_DIR="+runtime)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return string(out)
	}
	for name, runtime := range map[string]string{"no runtime folder": "", "no systemd": t.TempDir()} {
		if out := enter(runtime); !strings.HasPrefix(out, "false ") {
			t.Errorf("%s: %s", name, out)
		}
	}
	runtime := t.TempDir()
	systemd := exec.Command("unshare", "--mount", "sh", "-c",
		"mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && exec /lib/systemd/systemd --user")
	systemd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+runtime)
	if err := systemd.Start(); err != nil {
		t.Fatal(err)
	}
	defer systemd.Wait() // it was killed
	defer systemd.Process.Kill()
	for deadline := time.Now().Add(patience.Limit); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(runtime, "bus")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("systemd --user has not started")
		}
	}
	out := enter(runtime)
	var entered bool
	var pid int
	if _, err := fmt.Sscan(out, &entered, &pid); err != nil || !entered || !strings.Contains(out, fmt.Sprintf("/plx-job-%d.scope\n", pid)) {
		t.Errorf("%v: %s", err, out)
	}
}
