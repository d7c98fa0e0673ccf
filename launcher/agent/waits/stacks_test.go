//go:build linux

package waits

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
)

// TestPythonStacks has a process write its stacks that registered the signal, without the
// thread of plx's own. It leaves one alone that did not and would die of it.
func TestPythonStacks(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "worker-0.0.python")
	prepared := start(t, python, "-c", `import _thread, faulthandler, sys, time
faulthandler.register(58, file=open(sys.argv[1], 'a'))
def _wait_for_plx(): time.sleep(600)
_thread.start_new_thread(_wait_for_plx, ())
time.sleep(600)`, file).Process.Pid
	plain := start(t, python, "-c", "import time\ntime.sleep(600)").Process.Pid
	await(t, prepared, waitsFor(protocol.Sleeps))
	await(t, plain, waitsFor(protocol.Sleeps))
	for range 2 {
		if got := Python(prepared, file); strings.Count(got, "line 5 in <module>") != 1 || strings.Contains(got, "_wait_for_plx") {
			t.Errorf("stacks %q", got)
		}
	}
	if got := Python(plain, file); got != "" {
		t.Errorf("stacks of a process that has none: %q", got)
	}
	await(t, plain, waitsFor(protocol.Sleeps))
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
