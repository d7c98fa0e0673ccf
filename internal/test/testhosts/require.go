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

// sshd must be started by its absolute path, which the package fixes.
const sshd = "/usr/sbin/sshd"

// require skips a test that cannot have hosts here; in CI that is a failure. With
// -short it skips every test.
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

// Available says why this machine cannot have test hosts, or nil.
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

// needCapabilities notices the root of a container, who is not allowed what
// root is allowed elsewhere.
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

// statusField returns the value of one line of a /proc/PID/status text.
func statusField(status, name string) string {
	for line := range strings.Lines(status) {
		if key, value, found := strings.Cut(line, ":"); found && key == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// tool runs one of the system's programs and gives its complaint as the error.
func tool(stdin string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
