//go:build linux

package agent

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/trainer/cluster"
)

func TestJobRunsAndLeavesNothing(t *testing.T) {
	h := newHost(t, 2, "exit", "7")
	l, pids := h.launch()
	if len(pids) != 2 {
		t.Errorf("pids %v, want 2", pids)
	}
	for task, e := range l.exits(2) {
		if e.Code != 7 || e.Signal != 0 || !e.Started || e.Native || e.StopRequested {
			t.Errorf("%s: %+v", task, e)
		}
	}
	l.end(h, 0)
	state, _ := h.folder().ReadState()
	if state.Verdict.Reason != "done" || state.Tasks["worker:1"].Exit.Code != 7 {
		t.Errorf("state %+v", state)
	}
}

func TestSignalIsReported(t *testing.T) {
	h := newHost(t, 1, "signal", "9")
	l, _ := h.launch()
	if e := l.exits(1)[worker(0)]; e.Signal != 9 || e.Code != 137 {
		t.Errorf("%+v, want signal 9", e)
	}
	l.end(h, 0)
}

func TestTaskGetsItsEnvironment(t *testing.T) {
	args := []string{"", " ", "a b", "{\"x\": '1'}", "$HOME", "*", "\xff\xfe", "line\nline", "--", "`id`"}
	h := newHost(t, 2, append([]string{"echo"}, args...)...)
	h.spec.Env = []protocol.Raw{"WITH_BYTES=\xff,\n=x ", "EMPTY=", "LOGIN_VARIABLE=user", "PLX_RANK=99"}
	h.spec.Command.Path = "/opt/first"
	h.spec.Bind = true
	h.spec.Tasks[1].Devices = "3"
	h.spec.Tasks = append(h.spec.Tasks, protocol.TaskSpec{Task: cluster.Task{Role: cluster.PS}})
	l, _ := h.launch()
	l.exits(3)
	l.end(h, 0)
	cores, err := process.AllowedCores()
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"worker-0.stdout", "worker-1.stdout", "ps-0.stdout"} {
		s := decode[seen](t, h.spool(name))
		checkSeen(t, h, s, args)
		want := cores
		if i < 2 {
			want = process.ShareOfCores(cores, i, 2)
		}
		if !slices.Equal(s.Affinity, want) {
			t.Errorf("%s runs on cores %v, want %v", name, s.Affinity, want)
		}
		env := asText(s.Env)
		device, _ := program.Lookup(env, "CUDA_VISIBLE_DEVICES")
		if want := map[int]string{1: "3"}[i]; device != want {
			t.Errorf("%s: CUDA_VISIBLE_DEVICES=%q, want %q", name, device, want)
		}
		threads, set := program.Lookup(env, "OMP_NUM_THREADS")
		if set != (i < 2) || set && threads != strconv.Itoa(len(want)) {
			t.Errorf("%s: OMP_NUM_THREADS=%q, %v", name, threads, set)
		}
	}
}

func asText(raw [][]byte) []string {
	var text []string
	for _, r := range raw {
		text = append(text, string(r))
	}
	return text
}

func checkSeen(t *testing.T, h *testHost, s seen, args []string) {
	t.Helper()
	if got := asText(s.Args); !slices.Equal(got, args) {
		t.Errorf("args %q, want %q", got, args)
	}
	if !s.Session {
		t.Error("not the leader of a session")
	}
	if want := []int{0, 1, 2, program.ListenFD, program.ControlFD}; !slices.Equal(s.FDs, want) {
		t.Errorf("inherited descriptors %v, want %v", s.FDs, want)
	}
	env := asText(s.Env)
	names := map[string]bool{}
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if names[name] {
			t.Errorf("%s is set twice", name)
		}
		names[name] = true
	}
	for _, name := range []string{"SSH_CONNECTION", "PLX_FOO", "PLX_AGENT_JOB"} {
		if names[name] {
			t.Errorf("%s has come through", name)
		}
	}
	path, _ := program.Lookup(env, "PATH")
	for name, want := range map[string]string{
		"WITH_BYTES": "\xff,\n=x ", "EMPTY": "", "LOGIN_VARIABLE": "user", "PLX_JOB": h.spec.Job,
		"PLX_DIR": s.Dir, "PWD": s.Dir, "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1",
		"PATH": "/opt/first:" + strings.TrimPrefix(path, "/opt/first:"),
	} {
		if name == "MASTER_ADDR" && !names["PLX_RANK"] {
			continue // of workers only
		}
		if got, ok := program.Lookup(env, name); !ok || got != want {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
	if rank, _ := program.Lookup(env, "PLX_RANK"); rank == "99" {
		t.Error("the user's PLX_RANK won over the contract")
	}
}

func TestCommands(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	write := func(path, text string, mode os.FileMode) {
		if err := executable.Write(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(script, "#!/bin/sh\necho $0 from $PWD; exit 3\n", 0o755)
	write(filepath.Join(dir, "nobang"), "echo hi\n", 0o755)
	write(filepath.Join(dir, "nointerpreter"), "#!/nowhere/sh\n", 0o755)
	write(filepath.Join(dir, "windows"), "#!/usr/bin/env sh\r\nexit 0\r\n", 0o755)
	write(filepath.Join(dir, "plain"), "x", 0o644)
	write(filepath.Join(dir, "activate"), "export FROM_SETUP=yes; PATH="+dir+":$PATH\n", 0o644)
	sh := protocol.Raw("/bin/sh")
	for name, test := range map[string]struct {
		command protocol.Command
		code    int
		cause   string
		prints  string
	}{
		"on path":        {command: protocol.Command{Name: "script", Path: protocol.Raw(dir)}, code: 3, prints: "script from"},
		"not found":      {command: protocol.Command{Name: "no-such-program"}, code: 127, cause: "not found on PATH"},
		"no file":        {command: protocol.Command{Name: protocol.Raw(dir + "/absent")}, code: 127, cause: "no such file"},
		"not executable": {command: protocol.Command{Name: "plain", Path: protocol.Raw(dir)}, code: 126, cause: "not executable"},
		"no #! line":     {command: protocol.Command{Name: "nobang", Path: protocol.Raw(dir)}, code: 126, cause: "#!"},
		"no interpreter": {command: protocol.Command{Name: "nointerpreter", Path: protocol.Raw(dir)}, code: 126, cause: "interpreter"},
		"Windows, env":   {command: protocol.Command{Name: "windows", Path: protocol.Raw(dir)}, code: 126, cause: "windows: the file has Windows line ends"},
		"folder":         {command: protocol.Command{Name: protocol.Raw(dir)}, code: 126, cause: "folder"},
		"no chdir":       {command: protocol.Command{Name: sh, Chdir: "absent"}, code: 125, cause: "absent"},
		"chdir":          {command: protocol.Command{Name: "pwd", Chdir: protocol.Raw(dir)}, prints: dir},
		"setup": {command: protocol.Command{Name: "sh", Args: []protocol.Raw{"-c", "echo $FROM_SETUP \"$1\"", "x", "a  b"},
			Setup: protocol.Raw("source " + dir + "/activate")}, prints: "yes a  b"},
		"setup finds":     {command: protocol.Command{Name: "script", Setup: protocol.Raw("source " + dir + "/activate")}, code: 3, prints: "script from"},
		"setup fails":     {command: protocol.Command{Name: "script", Setup: protocol.Raw("source " + dir + "/absent")}, code: 1},
		"setup not found": {command: protocol.Command{Name: "no-such-program", Setup: ":"}, code: 127},
		"no blob":         {command: protocol.Command{Blob: strings.Repeat("ab", 32), Base: "train"}, code: 127, cause: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, 1)
			h.spec.Command = test.command
			l, pids := h.launch()
			e := h.exitOf(worker(0))
			if e.Code != test.code || !strings.Contains(e.Cause, test.cause) || e.Started != (len(pids) == 1) {
				t.Errorf("%+v", e)
			}
			if test.prints != "" && !strings.Contains(h.spool("worker-0.stdout"), test.prints) {
				t.Errorf("prints %q, want %q", h.spool("worker-0.stdout"), test.prints)
			}
			l.end(h, 0)
		})
	}
}

// exitOf waits until the state file shows how a task has ended.
func (h *testHost) exitOf(task cluster.Task) protocol.Exit {
	h.t.Helper()
	var exit protocol.Exit
	eventually(h.t, task.String()+" ends", func() bool {
		s, err := h.folder().ReadState()
		if err != nil || s.Tasks[task.String()] == nil || s.Tasks[task.String()].Exit == nil {
			return false
		}
		exit = *s.Tasks[task.String()].Exit
		return true
	})
	return exit
}

func TestBlobIsExecutedUnderItsName(t *testing.T) {
	h := newHost(t, 1, "echo")
	sum := strings.Repeat("0a", 32)
	blobs := filepath.Join(h.home, ".plx", "blobs")
	if err := os.MkdirAll(blobs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(string(h.spec.Command.Name), filepath.Join(blobs, sum)); err != nil {
		t.Fatal(err)
	}
	h.spec.Command.Name, h.spec.Command.Blob, h.spec.Command.Base = "", sum, "train me"
	l, _ := h.launch()
	l.exits(1)
	l.end(h, 0)
	if s := decode[seen](t, h.spool("worker-0.stdout")); s.Argv0 != "train me" {
		t.Errorf("argv[0] is %q", s.Argv0)
	}
}

func TestNativeTask(t *testing.T) {
	for name, test := range map[string]struct {
		words []string
		want  protocol.Exit
	}{
		"finished":     {[]string{"finished"}, protocol.Exit{Native: true, Finished: true}},
		"not finished": {[]string{"beat=1"}, protocol.Exit{Native: true}},
		"failed":       {[]string{"failed=no gradient", "exit=1"}, protocol.Exit{Native: true, Code: 1, Cause: "no gradient", LostPeer: "worker:1 on gpu02"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, 1, append([]string{"native"}, test.words...)...)
			l, _ := h.launch()
			e := l.exits(1)[worker(0)]
			got := protocol.Exit{Native: e.Native, Finished: e.Finished, Code: e.Code, Cause: e.Cause, LostPeer: e.LostPeer}
			if got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
			l.end(h, 0)
		})
	}
}

func TestHeartbeatsAreForwardedOncePerSecond(t *testing.T) {
	words := []string{"native"}
	for i := range 100 {
		words = append(words, fmt.Sprintf("beat=%d", i))
	}
	h := newHost(t, 1, append(words, "finished")...)
	l, _ := h.launch()
	said := 0
	l.wait("Exited", func(m protocol.Message) bool {
		if m.TaskReport != nil && m.TaskReport.Message.Kind == cluster.Heartbeat {
			said++
		}
		return m.Exited != nil
	})
	if said < 1 || said > 20 {
		t.Errorf("%d heartbeats were passed on, want about one a second", said)
	}
	l.end(h, 0)
	if s, _ := h.folder().ReadState(); s.Tasks["worker:0"].Step != 99 {
		t.Errorf("step %d, want 99", s.Tasks["worker:0"].Step)
	}
}

// The state has the last message of a task about its steps, for a driver that
// was disconnected. A message without a step does not replace it.
func TestLastMessageIsInTheState(t *testing.T) {
	h := newHost(t, 1, "native", "beat=29-28", "beat=31-28", "beat=0", "finished")
	l, _ := h.launch()
	l.exits(1)
	l.send(protocol.Message{Attach: &protocol.Attach{Driver: true}})
	state := l.wait("State", func(m protocol.Message) bool { return m.State != nil }).State
	want := cluster.ControlMessage{Kind: cluster.Heartbeat, Step: 31, From: 28}
	if now := state.Tasks["worker:0"]; now.Exit == nil || now.LastProgress == nil || *now.LastProgress != want {
		t.Errorf("%+v, want the word %+v", now, want)
	}
	l.end(h, 0)
}

// The agent forwards that a job tolerates the loss of workers, and keeps that
// in the state for a driver that was disconnected.
func TestToleratesLossIsForwarded(t *testing.T) {
	h := newHost(t, 1, "native", "bears", "finished")
	l, _ := h.launch()
	l.wait("Said", func(m protocol.Message) bool {
		return m.TaskReport != nil && m.TaskReport.Message.Kind == cluster.ToleratesLoss && m.TaskReport.Task == worker(0)
	})
	l.exits(1)
	l.end(h, 0)
	if s, _ := h.folder().ReadState(); !s.Tasks["worker:0"].ToleratesLoss {
		t.Errorf("%+v", s.Tasks["worker:0"])
	}
}

func TestInheritedListenerServes(t *testing.T) {
	h := newHost(t, 1, "native", "listen", "finished")
	l, _ := h.start()
	open, reserved := l.prepare(0)
	l.send(protocol.Message{Start: &protocol.Start{Addresses: protocol.NewAddresses(open, reserved)}})
	conn, err := net.DialTimeout("tcp", open.Addr(worker(0)), patience.Limit) // before the task listens
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience.Limit))
	buf := make([]byte, 5)
	if _, err := conn.Read(buf); err != nil || string(buf) != "hello" {
		t.Errorf("read %q, %v", buf, err)
	}
	l.exits(1)
	if _, err := net.Dial("tcp", open.Addr(worker(0))); err == nil {
		t.Error("the port is still open after the task's end: the agent kept a copy")
	}
	l.end(h, 0)
}

func TestReservedPortCanBeBound(t *testing.T) {
	h := newHost(t, 1, "serve")
	l, _ := h.start()
	open, reserved := l.prepare(0)
	addr := reserved.Addr(worker(0))
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("the reserved port takes connections before the program listens")
	}
	l.send(protocol.Message{Start: &protocol.Start{Addresses: protocol.NewAddresses(open, reserved)}})
	h.prints("worker-0.stdout", "ready")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if e := l.exits(1)[worker(0)]; e.Code != 0 {
		t.Errorf("%+v: %s", e, h.spool("worker-0.stdout"))
	}
	l.end(h, 0)
}

func TestOutputIsComplete(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const size = 2 << 20
	h := newHost(t, 1, "flood", strconv.Itoa(size))
	l, _ := h.launch()
	e := l.exits(1)[worker(0)]
	for _, name := range []string{"worker-0.stdout", "worker-0.stderr"} {
		if got := len(h.spool(name)); got != size {
			t.Errorf("%s has %d bytes, want %d", name, got, size)
		}
	}
	if len(e.Tail) != 4<<10 {
		t.Errorf("tail of %d bytes, want %d", len(e.Tail), 4<<10)
	}
	l.end(h, 0)
}

// A task that prints four times its log limit still ends normally. The host
// keeps the newest part. Each reader learns how many bytes are missing,
// whether it reads during the task or afterwards.
func TestLogLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const size = 4 * logs.MinLimit
	h := newHost(t, 1, "flood", strconv.Itoa(size))
	h.spec.LogLimit = logs.MinLimit
	l, _ := h.start()
	go l.renew(h.spec.Lease / 5)
	slow := h.command("logs", h.spec.Job, h.spec.Folder)
	slow.Stdin = strings.NewReader(`{"tail_lines":-1,"follow":true}` + "\n")
	out, err := slow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	l.run(0)
	if e := l.exits(1)[worker(0)]; e.Code != 0 {
		t.Errorf("exit status %d", e.Code)
	}
	l.end(h, 0) // slow is read only from here on
	live := bytesOf(t, out)
	if err := slow.Wait(); err != nil {
		t.Error(err)
	}
	late := h.command("logs", h.spec.Job, h.spec.Folder)
	late.Stdin = strings.NewReader(`{"tail_lines":-1}` + "\n")
	text, err := late.Output()
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range []map[logs.Source]told{live, bytesOf(t, bytes.NewReader(text))} {
		for _, stream := range []logs.Stream{logs.Stdout, logs.Stderr} {
			if g := got[logs.Source{Task: "worker:0", Stream: stream}]; g.bytes+g.dropped != size || g.dropped == 0 || g.bytes == 0 {
				t.Errorf("reader %d of %s: %d bytes, %d dropped, want %d in all", i, stream, g.bytes, g.dropped, size)
			}
		}
	}
	kept := int64(0)
	files, err := os.ReadDir(h.folder().Logs())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		kept += info.Size()
	}
	if kept > logs.MinLimit || kept < logs.MinLimit/2 {
		t.Errorf("%d bytes are left on the disk", kept)
	}
}

// told has the number of bytes that a reader received of a source, and the
// number reported as dropped.
type told struct{ bytes, dropped int64 }

func bytesOf(t *testing.T, stream io.Reader) map[logs.Source]told {
	t.Helper()
	all := map[logs.Source]told{}
	for r := logs.NewReader(stream); ; {
		c, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		got := all[c.Source]
		all[c.Source] = told{got.bytes + int64(len(c.Data)), got.dropped + c.Dropped}
	}
}

func TestOutputHeldOpenByADescendantIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	h := newHost(t, 1, "holder")
	l, _ := h.launch()
	told := false
	l.wait("Exited", func(m protocol.Message) bool {
		told = told || strings.Contains(m.Notice, "holds its output open")
		return m.Exited != nil
	})
	if !told {
		t.Error("nobody was told that something holds the output open")
	}
	h.prints("worker-0.stdout", "ghost") // later output of the leftover process is stored too
	l.end(h, 0)
}

func TestStateKeepsNoSecret(t *testing.T) {
	h := newHost(t, 1, "wait")
	h.spec.Env = []protocol.Raw{"TOKEN=hush-hush"}
	l, _ := h.launch()
	h.prints("worker-0.stdout", "ready")
	info, err := os.Stat(h.folder().Secret())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("secret file: %v, %v", info, err)
	}
	err = filepath.WalkDir(h.home, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "hush-hush") {
			t.Errorf("%s holds the environment", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	procs, _ := process.OfJob(h.spec.Job, "")
	for _, p := range procs {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if strings.Contains(string(cmdline), "hush-hush") {
			t.Errorf("the command line of %d holds the environment", p.PID)
		}
	}
	l.end(h, 0)
}

// Stacks of a task can be collected at once after its start, before the first
// sample.
func TestStacksOfATaskThatHasJustStarted(t *testing.T) {
	h, l, pids := ready(t, "wait")
	l.send(protocol.Message{Look: &protocol.ActivityRequest{ID: 1, Stacks: true, Tell: true}})
	seen := l.wait("Seen", func(m protocol.Message) bool { return m.Seen != nil }).Seen
	if a := seen.Tasks[worker(0)]; a == nil || !strings.Contains(a.Stacks, fmt.Sprintf("process %d ", pids[worker(0)])) {
		t.Errorf("seen %+v", seen.Tasks)
	}
	l.end(h, time.Second)
}
