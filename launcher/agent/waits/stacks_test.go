//go:build linux

package waits

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
)

// asked starts a Python process in the way tasks are started, with file for
// its stacks.
func asked(t *testing.T, file string, args ...string) int {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	f := jobfolder.StacksOf(jobfolder.Folder(t.TempDir()))
	if err := f.Prepare(); err != nil {
		t.Fatal(err)
	}
	env := []string{"PYTHONPATH=" + f.Python(), "PLX_PYTHON_STACKS=" + file, python}
	return start(t, "env", append(env, args...)...).Process.Pid
}

// A Python process writes its stacks, without those of plx's own threads, even
// while native code holds the GIL. A Python that ignores its environment gets
// no signal, which would kill it.
func TestPythonStacks(t *testing.T) {
	dir := t.TempDir()
	const program = "import ctypes, time\nopen(%q, 'w')\n%s"
	for name, call := range map[string]string{
		"sleeps":         "time.sleep(600)",
		"keeps the lock": "ctypes.PyDLL(None).sleep(600)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, begun := filepath.Join(dir, name+".python"), filepath.Join(dir, name)
			pid := asked(t, file, "-c", fmt.Sprintf(program, begun, call))
			awaitFile(t, begun)
			await(t, pid, waitsFor(protocol.Sleeps))
			for range 2 {
				if got := Python(pid, file); strings.Count(got, "line 3 in <module>") != 1 || strings.Contains(got, "_for_plx") {
					t.Errorf("stacks %q", got)
				}
			}
		})
	}
	t.Run("is not prepared", func(t *testing.T) {
		t.Parallel()
		file, begun := filepath.Join(dir, "plain.python"), filepath.Join(dir, "plain")
		pid := asked(t, file, "-I", "-c", fmt.Sprintf(program, begun, "time.sleep(600)"))
		awaitFile(t, begun)
		await(t, pid, waitsFor(protocol.Sleeps))
		if got := Python(pid, file); got != "" {
			t.Errorf("stacks of a process that has none: %q", got)
		}
		await(t, pid, waitsFor(protocol.Sleeps))
		if !IsPython(pid) || IsPython(os.Getpid()) {
			t.Error("Python is not told from other programs")
		}
	})
}

// Collecting stacks does not harm a Python process that is running Python
// code.
func TestPythonStacksWhileItRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "busy.python")
	pid := asked(t, file, "-c", `
def deep(n): return sum(deep(n - 1) for _ in "a") if n else 0
while True:
    for n in range(30):
        exec(compile("def f(g, n): return g(n)\nf(g, n)", "made", "exec"), {"g": deep, "n": n})`)
	awaitFile(t, file)
	for i := range 15 {
		if got := Python(pid, file); !strings.Contains(got, " in <module>") {
			t.Fatalf("look %d: stacks %q, it runs: %t", i, got, stateOf(fmt.Sprintf("/proc/%d/", pid)) == 'R')
		}
	}
}

func awaitFile(t *testing.T, name string) {
	t.Helper()
	for end := time.Now().Add(patience.Limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(name); err == nil {
			return
		}
	}
	t.Fatalf("no %s after %s", name, patience.Limit)
}

func TestDescribe(t *testing.T) {
	p := protocol.Process{PID: 1 << 30, Parent: 1, Name: "train", Threads: []protocol.Thread{
		{Wait: protocol.OnRead, Where: "sk_wait_data", What: "socket:[1]", Count: 1, Sockets: []int{0}},
		{Wait: protocol.OnLock, Count: 3, PIDs: []int{5}}},
		Sockets: []protocol.Socket{{Local: "10.0.0.1:5", Peer: "10.0.0.2:6", Unread: 7}, {Local: "0.0.0.0:80", Listening: true}}}
	got := Describe(p)
	for _, want := range []string{"process 1073741824 (train), child of 1\n", "first thread: read, sk_wait_data, socket:[1]\n",
		"3 other threads: lock, processes [5]\n", "socket 10.0.0.1:5 to 10.0.0.2:6: 7 bytes unread", "socket 0.0.0.0:80 listens"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
