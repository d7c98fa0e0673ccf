//go:build linux

package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// stubborn starts two tasks that ignore SIGTERM. Each has a daemon in a
// separate session that ignores SIGTERM too.
func stubborn(t *testing.T) (*testHost, *line, map[cluster.Task]int) {
	t.Helper()
	h := newHost(t, 2, "stubborn")
	l, pids := h.launch()
	for _, name := range []string{"worker-0.stdout", "worker-1.stdout"} {
		h.prints(name, "ready")
		h.prints(name, "ghost")
	}
	if procs, err := process.OfJob(h.spec.Job, ""); err != nil || len(procs) != 5 {
		t.Fatalf("%d processes of the job, %v, want 5: supervisor, tasks and their daemons", len(procs), err)
	}
	return h, l, pids
}

func TestEndKillsTasksThatIgnoreSIGTERM(t *testing.T) {
	h, l, _ := stubborn(t)
	begun := time.Now()
	l.end(h, 300*time.Millisecond)
	if d := time.Since(begun); d < 300*time.Millisecond || d > patience.Limit {
		t.Errorf("took %s with a grace of 300 ms", d)
	}
	state, _ := h.folder().ReadState()
	if e := state.Tasks["worker:0"].Exit; e == nil || e.Signal != int(unix.SIGKILL) || !e.StopRequested {
		t.Errorf("%+v, want told and killed", e)
	}
}

// hopper is a shell script that forks into a new session and exits, over and
// over, so that its pid changes every few milliseconds.
const hopper = `echo ready; hop='(setsid sh -c "$hop" &)'; export hop; sh -c "$hop"; exec sleep 1000`

func TestForkingProcessIsKilled(t *testing.T) {
	for name, kills := range map[string]bool{"end": false, "killed supervisor": true} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, 1)
			h.spec.Command = protocol.Command{Name: "sh", Args: []protocol.Raw{"-c", hopper}}
			l, _ := h.launch()
			h.prints("worker-0.stdout", "ready")
			if !kills {
				l.end(h, 0)
				return
			}
			state, _ := h.folder().ReadState()
			kill(t, state.Supervisor)
			l.goneWith(h, codeNoAgent)
		})
	}
}

func TestSecondEndShortensTheGracePeriod(t *testing.T) {
	h, l, _ := stubborn(t)
	l.send(protocol.Message{End: &protocol.End{Grace: time.Hour, Verdict: protocol.Verdict{Code: 130, Reason: "interrupted"}}})
	l.end(h, 0)
	if state, _ := h.folder().ReadState(); state.Verdict.Code != 130 {
		t.Errorf("verdict %+v, want that of the first End", state.Verdict)
	}
}

func TestKilledSupervisorLeavesNoProcess(t *testing.T) {
	h, l, _ := stubborn(t)
	state, _ := h.folder().ReadState()
	kill(t, state.Supervisor)
	state = l.goneWith(h, codeNoAgent)
	if want := "plx agent: the agent's supervisor was ended (signal killed)\n"; l.stderr.String() != want {
		t.Errorf("it says %q, want %q", l.stderr, want)
	}
	if v := state.Verdict; v.Code != 125 || !strings.Contains(v.Reason, "supervisor") {
		t.Errorf("verdict %+v, want one that blames the supervisor", v)
	}
	if err := h.ask(protocol.DoConnect).Err; err == nil || err.Code != protocol.CodeNoAgent || !strings.Contains(err.Text, "supervisor") {
		t.Errorf("connect: %+v", err)
	}
}

func TestKilledWatchdogLeavesNoProcess(t *testing.T) {
	h, l, _ := stubborn(t)
	state, _ := h.folder().ReadState()
	kill(t, state.Watchdog)
	l.wait("Notice", func(m protocol.Message) bool { return strings.Contains(m.Notice, "watchdog") })
	for task, e := range l.exits(2) {
		if e.Signal != int(unix.SIGKILL) || !strings.Contains(e.Cause, "watchdog") {
			t.Errorf("%s: %+v", task, e)
		}
	}
	l.closed()
	eventually(t, "the supervisor has ended", func() bool { return !process.Alive(state.Supervisor, state.SupervisorStart) })
	state = l.goneWith(h, -1)
	if v := state.Verdict; v.Code != 125 || !strings.Contains(v.Reason, "watchdog") {
		t.Errorf("verdict %+v, want one that blames the watchdog", v)
	}
}

func TestKillingWatchdogAndSupervisorLeavesNoTask(t *testing.T) {
	h := newHost(t, 2, "wait")
	_, _ = h.launch()
	h.prints("worker-0.stdout", "ready")
	h.prints("worker-1.stdout", "ready")
	state, _ := h.folder().ReadState()
	for _, pid := range []int{state.Watchdog, state.Supervisor} {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil { // suspended, so that neither process notices the end of the other
			t.Fatal(err)
		}
	}
	kill(t, state.Watchdog)
	kill(t, state.Supervisor)
	eventually(t, "the tasks end with their parent", func() bool {
		left, err := process.OfJob(h.spec.Job, "")
		return err == nil && len(left) == 0
	})
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestReapKillsProcessesOfADeadAgent(t *testing.T) {
	h, _, _ := stubborn(t)
	other := newHost(t, 1, "wait")
	other.home, other.spec.Job, other.spec.Folder = h.home, h.spec.Job, "gpu02"
	ol, _ := other.launch()
	other.prints("worker-0.stdout", "ready")
	if err := h.ask(protocol.DoReap).Err; err != nil {
		t.Error(err)
	}
	if left, _ := process.OfJob(h.spec.Job, h.spec.Folder); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if left, _ := process.OfJob(h.spec.Job, "gpu02"); len(left) != 2 {
		t.Errorf("%d processes of the other host of the machine, want both", len(left))
	}
	ol.end(other, 0)
	if s := decode[protocol.State](t, string(h.ask(protocol.DoState).Out)); s.Phase != protocol.Over || s.Verdict.Code != 125 {
		t.Errorf("state %+v", s)
	}
	if _, err := os.Stat(h.folder().Secret()); err == nil {
		t.Error("the secret is still there")
	}
}

// Reaping does not touch a job whose agent runs on another machine that shares
// the home.
func TestReapSkipsJobsOfOtherMachines(t *testing.T) {
	h := newHost(t, 0)
	if err := os.MkdirAll(string(h.folder()), 0o700); err != nil {
		t.Fatal(err)
	}
	state := jobfolder.FirstState(h.spec)
	state.Phase, state.Machine = protocol.Running, "elsewhere 1 pid:[1]"
	if err := errors.Join(h.folder().WriteState(state), os.WriteFile(h.folder().Secret(), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := h.ask(protocol.DoReap).Err; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(h.folder().Secret()); err != nil {
		t.Error(err)
	}
	if now, err := h.folder().ReadState(); err != nil || now.Phase != protocol.Running {
		t.Errorf("phase %s, %v", now.Phase, err)
	}
}

func TestLeaseEndsTheJob(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	h := newHost(t, 2, "stubborn")
	h.spec.Lease, h.spec.Grace = 10*time.Second, time.Second
	l, _ := h.start()
	heard := time.Now() // or a moment before
	l.run(0)
	for _, e := range l.exits(2) {
		if e.Signal != int(unix.SIGKILL) || !e.StopRequested {
			t.Errorf("%+v", e)
		}
		if d := e.Time.Sub(heard); d < 6*time.Second || d > h.spec.Lease {
			t.Errorf("%s ended after %s, with a lease of %s", e.Task, d, h.spec.Lease)
		}
	}
	state := l.gone(h)
	if v := state.Verdict; v.Code != 125 || !strings.Contains(v.Reason, "not heard for 10s") {
		t.Errorf("verdict %+v", v)
	}
}

func TestRenewedLeaseDoesNotExpire(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	h := newHost(t, 1, "wait")
	h.spec.Lease = 5 * time.Second
	l, _ := h.launch()
	begun := time.Now()
	l.wait("more renewals than one lease", func(m protocol.Message) bool {
		return m.Exited != nil || m.Renewed != nil && time.Since(begun) > h.spec.Lease+2*time.Second
	})
	if s, _ := h.folder().ReadState(); s.Phase != protocol.Running {
		t.Errorf("phase %s", s.Phase)
	}
	l.end(h, 0)
}

// Renewals that waited in a pipe while the host was suspended arrive too late
// to keep the lease.
func TestLateRenewalDoesNotReviveTheLease(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	h := newHost(t, 1, "wait")
	h.spec.Lease, h.spec.Grace = 5*time.Second, 0
	h.launch() // launch also renews the lease in the background
	s, err := h.folder().ReadState()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{s.Watchdog, s.Supervisor} { // both processes, because the watchdog would kill a stuck supervisor
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	froze := time.Now()
	eventually(t, "the lease runs out", func() bool { return time.Since(froze) > h.spec.Lease })
	for _, pid := range []int{s.Supervisor, s.Watchdog} {
		if err := unix.Kill(pid, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the job ends", func() bool {
		left, err := process.OfJob(h.spec.Job, "")
		return err == nil && len(left) == 0
	})
}

// A stuck supervisor cannot check the lease. Its watchdog kills it before the
// lease expires.
func TestStuckSupervisorIsKilledWithinTheLease(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	h := newHost(t, 1, "stubborn")
	h.spec.Lease, h.spec.Grace = 10*time.Second, 0
	h.launch() // launch also renews the lease in the background
	h.prints("worker-0.stdout", "ghost")
	s, err := h.folder().ReadState()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(s.Supervisor, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	froze := time.Now()
	eventually(t, "nothing is left", func() bool {
		left, err := process.OfJob(h.spec.Job, "")
		return err == nil && len(left) == 0
	})
	if took := time.Since(froze); took > h.spec.Lease {
		t.Errorf("it took %s, the lease is %s", took, h.spec.Lease)
	}
}

func TestStopEndsOneTaskWithItsDaemon(t *testing.T) {
	h, l, pids := stubborn(t)
	l.send(protocol.Message{Stop: &protocol.Stop{Tasks: []cluster.Task{worker(1)}, Grace: 200 * time.Millisecond}})
	if e := l.exits(1)[worker(1)]; e.Signal != int(unix.SIGKILL) || !e.StopRequested {
		t.Errorf("%+v", e)
	}
	eventually(t, "the daemon is gone", func() bool {
		left, err := process.OfJob(h.spec.Job, "")
		return err == nil && len(left) == 3
	})
	if _, err := process.Read(pids[worker(1)]); err == nil {
		t.Error("the stopped task is there")
	}
	if _, err := process.Read(pids[worker(0)]); err != nil {
		t.Errorf("the other task is gone: %v", err)
	}
	l.end(h, 0)
}

func TestStopSendsNativeTasksAMessageFirst(t *testing.T) {
	h, l, _ := ready(t, "native", "stop", "finished")
	l.send(protocol.Message{Stop: &protocol.Stop{Grace: time.Minute}})
	if e := l.exits(1)[worker(0)]; e.Code != 0 || !e.Finished || !e.StopRequested {
		t.Errorf("%+v, want finished when told over the channel", e)
	}
	l.end(h, 0)
}

func TestNativeTaskThatIgnoresMessagesGetsSIGTERM(t *testing.T) {
	h, l, _ := ready(t, "native", "deaf")
	l.send(protocol.Message{Stop: &protocol.Stop{Grace: time.Second}})
	if e := l.exits(1)[worker(0)]; e.Signal != int(unix.SIGTERM) {
		t.Errorf("%+v, want SIGTERM before SIGKILL", e)
	}
	l.end(h, 0)
}

func TestSuspendedTaskReceivesSIGTERM(t *testing.T) {
	h, l, pids := ready(t, "wait")
	if err := unix.Kill(pids[worker(0)], unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	l.send(protocol.Message{Stop: &protocol.Stop{Grace: time.Minute}})
	if e := l.exits(1)[worker(0)]; e.Signal != int(unix.SIGTERM) {
		t.Errorf("%+v, want SIGTERM although it was suspended", e)
	}
	l.end(h, 0)
}

func TestShutdownOfTheHostEndsTheJob(t *testing.T) {
	h, l, _ := ready(t, "wait")
	state, _ := h.folder().ReadState()
	if err := unix.Kill(state.Watchdog, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if e := l.exits(1)[worker(0)]; e.Signal != int(unix.SIGTERM) {
		t.Errorf("%+v, want SIGTERM", e)
	}
	if state := l.gone(h); state.Verdict.Code != 125 {
		t.Errorf("verdict %+v", state.Verdict)
	}
}

// After Ctrl-C a program gets SIGINT, so that it can save, and SIGTERM if it
// ignores that. In all other cases no program gets SIGINT.
func TestCtrlCSendsSIGINTThenSIGTERM(t *testing.T) {
	const saves = `trap 'sleep 0.2; echo saved; exit 7' INT; trap 'echo term; exit 8' TERM; echo ready; while :; do sleep 0.1; done`
	for name, c := range map[string]struct {
		script string
		stop   protocol.Stop
		says   string
		code   int
	}{
		"SIGINT first": {saves, protocol.Stop{Grace: time.Minute, Interrupt: true}, "saved", 7},
		"then SIGTERM": {`trap '' INT; trap 'echo term; exit 8' TERM; echo ready; while :; do sleep 0.1; done`, protocol.Stop{Grace: 3 * time.Second, Interrupt: true}, "term", 8},
		"plx stop":     {saves, protocol.Stop{Grace: time.Minute}, "term", 8},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, 1)
			h.spec.Command = protocol.Command{Name: "bash", Args: []protocol.Raw{"-c", protocol.Raw(c.script)}}
			l, _ := h.launch()
			h.prints("worker-0.stdout", "ready")
			l.send(protocol.Message{Stop: &c.stop})
			if e := l.exits(1)[worker(0)]; e.Code != c.code {
				t.Errorf("%+v, want status %d", e, c.code)
			}
			h.prints("worker-0.stdout", c.says)
			l.end(h, 0)
		})
	}
}

// At the end of a job the agent sends the number of files that the job has
// made to the launcher that started it. So the launcher need not run a command
// for that.
func TestLauncherGetsTheCountOfFilesAtTheEnd(t *testing.T) {
	h := newHost(t, 1)
	h.spec.Command = protocol.Command{Name: "sh", Args: []protocol.Raw{"-c", "echo four >a.txt; echo ready; exec sleep 1000"}}
	l, _ := h.launch()
	h.prints("worker-0.stdout", "ready")
	l.send(protocol.Message{End: &protocol.End{}})
	m := l.wait("Made", func(m protocol.Message) bool { return m.Made != nil })
	if *m.Made != (protocol.FileCounts{Files: 1, Bytes: 5}) {
		t.Errorf("%+v, want one file of 5 bytes", *m.Made)
	}
	l.gone(h)
}

// The process that the launcher has started becomes the watchdog, and changes
// its name in ps.
func TestStartProcessBecomesTheWatchdog(t *testing.T) {
	h, l, _ := ready(t, "wait")
	state, _ := h.folder().ReadState()
	if pid := l.cmd.Process.Pid; state.Watchdog != pid {
		t.Errorf("the watchdog is process %d, want %d", state.Watchdog, pid)
	}
	if p, err := process.Read(state.Supervisor); err != nil || p.Parent != state.Watchdog {
		t.Errorf("the supervisor: %+v, %v, want a child of the watchdog", p, err)
	}
	eventually(t, "the watchdog has its name", func() bool {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", state.Watchdog))
		return err == nil && string(name) == "plx-watchdog\n"
	})
	for _, fd := range []int{0, 1} {
		if at, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", state.Watchdog, fd)); err != nil || at != os.DevNull {
			t.Errorf("descriptor %d of the watchdog is %s, %v", fd, at, err)
		}
	}
	l.end(h, 0)
}

// Reaping also kills the watchdog, although its environment does not name the
// job.
func TestReapKillsTheWatchdog(t *testing.T) {
	h, _, _ := ready(t, "wait")
	state, _ := h.folder().ReadState()
	if err := unix.Kill(state.Watchdog, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := h.ask(protocol.DoReap).Err; err != nil {
		t.Error(err)
	}
	if process.Alive(state.Watchdog, state.WatchdogStart) {
		t.Error("the watchdog lives")
	}
	if state, _ := h.folder().ReadState(); state.Phase != protocol.Over {
		t.Errorf("phase %s", state.Phase)
	}
}
