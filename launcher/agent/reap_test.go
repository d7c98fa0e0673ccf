//go:build linux

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/watchdog"
	"github.com/plx-run/plx/launcher/protocol"
)

// hidden starts a task with a child that has left its session and cleared its
// environment. It kills supervisor and watchdog at once, and returns the
// child.
func hidden(t *testing.T) (*testHost, process.Process, protocol.State) {
	t.Helper()
	h := newHost(t, 1)
	h.spec.Command = protocol.Command{Name: "sh", Args: []protocol.Raw{"-c", "setsid env -i sleep 1003 & echo $!; echo ready; exec sleep 1000"}}
	h.launch()
	h.prints("worker-0.stdout", "ready")
	pid, _, _ := strings.Cut(h.spool("worker-0.stdout"), "\n")
	number, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	var child process.Process
	eventually(t, "the child sleeps", func() bool {
		child, err = process.Read(number)
		return err == nil && child.Name == "sleep" && child.Session == number
	})
	t.Cleanup(func() { process.Signal(child, unix.SIGKILL) })
	state, _ := h.folder().ReadState()
	for _, pid := range []int{state.Watchdog, state.Supervisor} {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil { // suspended, so that neither process notices the end of the other
			t.Fatal(err)
		}
	}
	kill(t, state.Watchdog)
	kill(t, state.Supervisor)
	eventually(t, "both are dead", func() bool { return jobfolder.LifeOf(state) == jobfolder.Dead })
	return h, child, state
}

// The next command on a job with a dead agent reports a child process without
// the job's mark. plx does not kill that child, since it could be a shell of
// the user.
func TestDeadAgentReportsProcessesWithoutTheMark(t *testing.T) {
	h, child, _ := hidden(t)
	want := fmt.Sprintf("%d (sleep); if so, end them: kill -9 %d", child.PID, child.PID)
	if s := decode[protocol.State](t, string(h.ask(protocol.DoState).Out)); s.Phase != protocol.Over || !strings.Contains(s.Verdict.Reason, want) {
		t.Errorf("state: %+v", s.Verdict)
	}
	t.Setenv("HOME", h.home)
	if answer, err := prune(t.Context(), protocol.PruneRequest{Discard: true}); err != nil || !strings.Contains(answer.Failed, want) || !there(h.folder().State()) {
		t.Errorf("prune: %+v, %v", answer, err)
	}
	if busy, err := (&pruner{}).runs(); err != nil || !strings.Contains(busy, want) {
		t.Errorf("prune --all: %q, %v", busy, err)
	}
	for range 2 { // the second answer comes from the job's state file
		if err := h.ask(protocol.DoConnect).Err; err == nil || err.Code != protocol.CodeNoAgent || !strings.Contains(err.Text, want) {
			t.Errorf("connect: %+v", err)
		}
		if !process.Alive(child.PID, child.Start) {
			t.Fatal("it was ended")
		}
	}
}

// If no such child is found, the report says that one may exist.
func TestDeadAgentWarnsOfPossibleProcesses(t *testing.T) {
	h, child, _ := hidden(t)
	process.Signal(child, unix.SIGKILL)
	eventually(t, "it has ended", func() bool { return !process.Alive(child.PID, child.Start) })
	if err := h.ask(protocol.DoConnect).Err; err == nil || !strings.Contains(err.Text, "may still run there: ps -fu $USER") {
		t.Errorf("connect: %+v", err)
	}
}

// Reaping kills all processes in the job's systemd scope, which no process can
// leave.
func TestReapKillsTheScopeOfADeadAgent(t *testing.T) {
	h, child, state := hidden(t)
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/unified/cgroup.procs"); err == nil {
		root += "/unified"
	}
	scope := filepath.Join(root, watchdog.Scope(h.spec.Job, state.Watchdog))
	if err := os.Mkdir(scope, 0o755); err != nil {
		t.Skipf("needs root, for a control group: %v", err)
	}
	t.Cleanup(func() {
		process.Signal(child, unix.SIGKILL)
		eventually(t, "the control group is empty", func() bool { return os.Remove(scope) == nil })
	})
	if err := os.WriteFile(scope+"/cgroup.procs", []byte(strconv.Itoa(child.PID)), 0); err != nil {
		t.Fatal(err)
	}
	if err := h.ask(protocol.DoReap).Err; err != nil {
		t.Error(err)
	}
	if process.Alive(child.PID, child.Start) {
		t.Error("it was not ended")
	}
}
