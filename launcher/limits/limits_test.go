package limits

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestMain runs Check instead of the tests in processes that TestCheck has
// started.
func TestMain(m *testing.M) {
	if os.Getenv("PLX_TEST_LIMITS") != "" {
		fmt.Print(Check())
		return
	}
	os.Exit(m.Run())
}

// checked returns the error text of Check in a process that a shell starts
// after the command limit (such as "ulimit -n 20").
func checked(t *testing.T, limit string, user int) string {
	t.Helper()
	self, err := os.Open("/proc/self/exe") // another user may not search the folder that it is in
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	cmd := exec.Command("sh", "-c", limit+"; exec /proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{self}
	if cmd.Env = append(os.Environ(), "PLX_TEST_LIMITS=yes"); user != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}}
		cmd.Dir = "/"
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %.200s", err, out)
	}
	return string(out)
}

// TestCheck has a shell set each limit, high and too low.
func TestCheck(t *testing.T) {
	for limit, want := range map[string]string{
		":":                   "<nil>",
		"ulimit -v unlimited": "<nil>",
		"ulimit -n 256":       "<nil>",
		"ulimit -n 20":        "the shell limits the number of open files to 20 (ulimit -n)",
		"ulimit -v 4000000":   "<nil>",
		"ulimit -d 1000000":   "<nil>",
	} {
		if got := checked(t, limit, 0); got != want {
			t.Errorf("%s: %q, want %q", limit, got, want)
		}
	}
	// How much Go reserves before main depends on the limit: somewhere it is too much for plx
	// and little enough for Go.
	found := false
	for kib := 750_000; kib < 2_000_000 && !found; kib += 25_000 {
		got := checked(t, fmt.Sprintf("ulimit -v %d", kib), 0)
		found = got == fmt.Sprintf("the shell limits the address space to %d MiB (ulimit -v)", kib>>10)
	}
	if !found {
		t.Error("no limit of the address space is too low")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	const user = 64123 // who has nothing else
	for limit, want := range map[int]string{12: "the shell limits the number of processes to 12 (ulimit -u), of which this user has ", 500: "<nil>"} {
		if got := checked(t, fmt.Sprintf("ulimit -u %[1]d 2>/dev/null || ulimit -p %[1]d", limit), user); !strings.HasPrefix(got, want) {
			t.Errorf("%d processes: %q, want %q", limit, got, want)
		}
	}
}
