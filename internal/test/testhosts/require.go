package testhosts

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// sshd is the absolute path of the SSH server, because sshd refuses to start
// if it is called by a relative path.
const sshd = "/usr/sbin/sshd"

// require skips the test if the test's machine cannot run test hosts; in CI it
// fails the test. With -short, it skips every test.
func require(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("testhosts: real hosts take seconds")
	}
	err := Available()
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		tb.Fatal(err)
	default:
		tb.Skip(err)
	}
}

// Available returns nil if the machine can run test hosts. If it cannot,
// Available returns the reason.
func Available() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("testhosts: needs Linux")
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("testhosts: needs root")
	}
	for _, tool := range []string{sshd, "ssh", "ip", "tc", "nsenter", "setpriv", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("testhosts: needs %s: %w", tool, err)
		}
	}
	return needCapabilities()
}

// needCapabilities returns an error if this process is root but lacks the
// necessary capabilities, as in many containers.
func needCapabilities() error {
	const netAdmin, sysAdmin = 12, 21
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("testhosts: needs /proc: %w", err)
	}
	effective, err := strconv.ParseUint(statusField(string(status), "CapEff"), 16, 64)
	if err != nil {
		return fmt.Errorf("testhosts: read own capabilities: %w", err)
	}
	if effective>>netAdmin&1 == 0 || effective>>sysAdmin&1 == 0 {
		return fmt.Errorf("testhosts: needs the right to make namespaces (capabilities sys_admin and net_admin)")
	}
	return nil
}

// statusField returns the value of one field of a /proc/PID/status file.
func statusField(status, name string) string {
	for line := range strings.Lines(status) {
		if key, value, found := strings.Cut(line, ":"); found && key == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// tool runs a system program. If it fails, the error contains its output.
func tool(stdin string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
