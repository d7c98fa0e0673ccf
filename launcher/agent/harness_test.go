//go:build linux

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// TestMain lets the test binary also act as an agent or as a task.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "agent" {
		os.Exit(Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	if len(os.Args) > 2 && os.Args[1] == "task" {
		os.Exit(behave(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

// testHost is a host with its own home folder, and one job on it.
type testHost struct {
	t    *testing.T
	home string
	spec protocol.Spec
}

// line is a connection to an agent process.
type line struct {
	t      *testing.T
	host   *testHost
	cmd    *exec.Cmd
	conn   *protocol.Conn
	asked  uint64 // calls so far
	in     chan protocol.Message
	logged []protocol.Logged // all log data received; complete once in is closed
	stderr *bytes.Buffer
	ended  chan struct{} // closed when the process at the other end (the watchdog or a relaying agent) has exited
	code   int
}

var jobNumber = func() func() int {
	var mu sync.Mutex
	n := 0
	return func() int { mu.Lock(); defer mu.Unlock(); n++; return n }
}()

// newHost returns a host whose job has n workers that run args and do not use
// plx's trainer.
func newHost(t *testing.T, n int, args ...string) *testHost {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	job := fmt.Sprintf("test-%d-%d", os.Getpid(), jobNumber())
	h := &testHost{t: t, home: t.TempDir(), spec: protocol.Spec{
		Job: job, Host: "gpu01", Folder: "gpu01", LogLevel: "info", Secret: bytes.Repeat([]byte{7}, cluster.SecretSize),
		Command: protocol.Command{Name: protocol.Raw(exe)}, WorldSize: n,
		DataAddr: "127.0.0.1", Lease: patience.Limit, Grace: 5 * time.Second, SaveTime: patience.Limit,
	}}
	for _, a := range append([]string{"task"}, args...) {
		h.spec.Command.Args = append(h.spec.Command.Args, protocol.Raw(a))
	}
	for i := range n {
		h.spec.Tasks = append(h.spec.Tasks, protocol.TaskSpec{Task: worker(i), LocalRank: i})
	}
	// Pretend that "agent gc" has just run, so that no agent starts it: tests
	// count processes.
	if err := errors.Join(os.Mkdir(filepath.Join(h.home, ".plx"), 0o700), os.WriteFile(h.tidied(), []byte("."), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.clean)
	return h
}

func (h *testHost) tidied() string { return jobfolder.LastGC(filepath.Join(h.home, ".plx")) }

func worker(i int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: i} }

func (h *testHost) folder() jobfolder.Folder {
	return jobfolder.Folder(filepath.Join(h.home, ".plx", "jobs", h.spec.Job, h.spec.Folder))
}

// clean checks that no process is left, and prints the agent's log if the test
// has failed.
func (h *testHost) clean() {
	if left, err := process.OfJob(h.spec.Job, ""); err != nil || len(left) > 0 {
		h.t.Errorf("left after the test: %v, %v", left, err)
		h.ask(protocol.DoReap)
	}
	text, _ := os.ReadFile(h.folder().Log()) // the log is missing if the agent did not start
	if bytes.Contains(text, []byte("DATA RACE")) || bytes.Contains(text, []byte("panic:")) {
		h.t.Error("a race or a panic in the agent")
	}
	if h.t.Failed() {
		h.t.Logf("agent.log:\n%s", text)
	}
}

// command returns the command "agent args" with the environment of this host.
func (h *testHost) command(args ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command(exe, append([]string{"agent"}, args...)...)
	cmd.Env = append(program.Without(os.Environ(), "HOME=", "PLX_"), "HOME="+h.home, "SSH_CONNECTION=x", "PLX_FOO=x", "LOGIN_VARIABLE=login",
		"GORACE=atexit_sleep_ms=0") // without this, each process built with -race needs a second to exit
	return cmd
}

// agent runs a short-lived command.
func (h *testHost) agent(args ...string) (stdout, stderr string, code int) {
	h.t.Helper()
	cmd := h.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if e := (&exec.ExitError{}); err != nil && !errors.As(err, &e) {
		h.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// dial starts an agent command and opens a connection over its standard
// streams.
func (h *testHost) dial(args ...string) *line {
	h.t.Helper()
	l := &line{t: h.t, host: h, cmd: h.command(args...), in: make(chan protocol.Message, 4096), stderr: &bytes.Buffer{}, ended: make(chan struct{})}
	theirs, stdin, err := os.Pipe() // not StdinPipe: Wait would close it when the watchdog ends, while the supervisor may still use it
	if err != nil {
		h.t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		h.t.Fatal(err)
	}
	l.cmd.Stdin, l.cmd.Stdout, l.cmd.Stderr = theirs, write, l.stderr
	if err := l.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	theirs.Close()
	write.Close()
	go func() {
		l.cmd.Wait()
		l.code = l.cmd.ProcessState.ExitCode()
		close(l.ended)
	}()
	open := protocol.Open
	if args[0] == "start" {
		open = protocol.OpenCalls
	}
	if l.conn, err = open(duplexPipe{read, stdin}); err != nil {
		l.conn = nil
		close(l.in)
		return l
	}
	go func() {
		defer close(l.in)
		for {
			m, err := l.conn.Receive()
			if err != nil {
				return
			}
			if m.Logged != nil {
				l.logged = append(l.logged, *m.Logged)
			}
			l.in <- m
		}
	}()
	h.t.Cleanup(func() { l.conn.Close(); <-l.ended })
	return l
}

// call sends a call to an agent without a job, and returns the reply.
func (l *line) call(do protocol.Method, in any) protocol.Reply {
	l.t.Helper()
	l.asked++
	l.send(protocol.Message{Call: &protocol.Call{ID: l.asked, Do: do, In: encode(l.t, in)}})
	r := l.wait("Reply", func(m protocol.Message) bool { return m.Reply != nil }).Reply
	if r.ID != l.asked {
		l.t.Fatalf("reply to %d, want %d", r.ID, l.asked)
	}
	return *r
}

// pipe makes a call that transfers bytes: it sends in as orders, and returns
// the bytes of all pieces.
func (l *line) pipe(do protocol.Method, want any, in ...string) (out string, failed *protocol.Failure) {
	l.t.Helper()
	l.asked++
	l.send(protocol.Message{Call: &protocol.Call{ID: l.asked, Do: do, In: encode(l.t, want)}})
	for _, text := range in {
		l.send(protocol.Message{Order: &protocol.Order{ID: l.asked, Data: []byte(text)}})
	}
	l.send(protocol.Message{Order: &protocol.Order{ID: l.asked}})
	var all []byte
	r := l.wait("Reply", func(m protocol.Message) bool {
		if m.Piece != nil {
			all = append(all, m.Piece.Data...)
			if m.Piece.ID != l.asked || m.Piece.Stream != 1 {
				l.t.Errorf("a piece of call %d, stream %d", m.Piece.ID, m.Piece.Stream)
			}
		}
		return m.Reply != nil
	}).Reply
	if r.ID != l.asked {
		l.t.Fatalf("reply to %d, want %d", r.ID, l.asked)
	}
	return string(all), r.Err
}

// named returns the job's id and the name of its folder on this host.
func (h *testHost) named() protocol.HostJob {
	return protocol.HostJob{Job: h.spec.Job, Folder: h.spec.Folder}
}

// ask starts a new agent process and makes a call about the job.
func (h *testHost) ask(do protocol.Method) protocol.Reply {
	h.t.Helper()
	l := h.dial("start")
	r := l.call(do, h.named())
	l.conn.Close()
	<-l.ended
	return r
}

// call makes a call that must succeed, and returns its result.
func call[Out any](l *line, do protocol.Method, in any) (out Out) {
	l.t.Helper()
	r := l.call(do, in)
	if r.Err != nil {
		l.t.Fatalf("%s: %v", do, r.Err)
	}
	if err := json.Unmarshal(r.Out, &out); err != nil {
		l.t.Fatal(err)
	}
	return out
}

type duplexPipe struct {
	io.ReadCloser
	w io.WriteCloser
}

func (d duplexPipe) Write(p []byte) (int, error) { return d.w.Write(p) }
func (d duplexPipe) Close() error                { return errors.Join(d.w.Close(), d.ReadCloser.Close()) }

// start starts the job's agent and returns its first state.
func (h *testHost) start() (*line, protocol.State) {
	h.t.Helper()
	l := h.dial("start")
	l.send(protocol.Message{Spec: &h.spec})
	return l, *l.wait("State", func(m protocol.Message) bool { return m.State != nil }).State
}

func (h *testHost) attach(driver bool) (*line, protocol.State) {
	h.t.Helper()
	l := h.dial("start")
	call[none](l, protocol.DoConnect, h.named())
	l.send(protocol.Message{Attach: &protocol.Attach{Driver: driver}})
	return l, *l.wait("State", func(m protocol.Message) bool { return m.State != nil }).State
}

// launch starts the agent and its tasks, and keeps renewing the lease.
func (h *testHost) launch() (*line, map[cluster.Task]int) {
	h.t.Helper()
	l, _ := h.start()
	go l.renew(min(h.spec.Lease/5, time.Second))
	return l, l.run(0)
}

// ready launches a job with one worker that runs args, and waits until the
// worker has printed "ready".
func ready(t *testing.T, args ...string) (*testHost, *line, map[cluster.Task]int) {
	t.Helper()
	h := newHost(t, 1, args...)
	l, pids := h.launch()
	h.prints("worker-0.stdout", "ready")
	return h, l, pids
}

func (l *line) renew(every time.Duration) {
	for range time.Tick(every) {
		if l.conn.Send(protocol.Message{Renew: &protocol.Renew{}}) != nil {
			return
		}
	}
}

// run prepares and starts a generation, and returns the pids of its tasks.
func (l *line) run(generation int) map[cluster.Task]int {
	l.t.Helper()
	spec, foreign := l.prepare(generation)
	l.send(protocol.Message{Start: &protocol.Start{Generation: generation, Addresses: protocol.NewAddresses(spec, foreign)}})
	return l.wait("Started", func(m protocol.Message) bool { return m.Started != nil }).Started.PIDs
}

func (l *line) prepare(generation int) (open, reserved cluster.Spec) {
	l.t.Helper()
	p := l.ask(generation, l.host.spec.Tasks)
	if p.Error != "" {
		l.t.Fatalf("prepare: %s", p.Error)
	}
	for task, addr := range p.Open {
		open.Set(task, addr)
		reserved.Set(task, p.Reserved[task])
	}
	return open, reserved
}

// ask sends a Prepare message for tasks and returns the reply.
func (l *line) ask(generation int, tasks []protocol.TaskSpec) *protocol.Prepared {
	l.t.Helper()
	l.send(protocol.Message{Prepare: &protocol.Prepare{Generation: generation, Tasks: tasks}})
	return l.wait("Prepared", func(m protocol.Message) bool { return m.Prepared != nil && m.Prepared.Generation == generation }).Prepared
}

func (l *line) send(m protocol.Message) {
	l.t.Helper()
	if l.conn == nil {
		<-l.ended
		l.t.Fatalf("no connection: %s", l.stderr)
	}
	if err := l.conn.Send(m); err != nil {
		l.t.Fatal(err)
	}
}

// wait returns the first message that ok accepts, and drops the messages
// before it.
func (l *line) wait(what string, ok func(protocol.Message) bool) protocol.Message {
	l.t.Helper()
	limit := time.After(patience.Limit)
	for {
		select {
		case m, open := <-l.in:
			if !open {
				<-l.ended
				l.t.Fatalf("the stream ended before %s: exit status %d: %s", what, l.code, l.stderr)
			}
			if ok(m) {
				return m
			}
		case <-limit:
			l.t.Fatalf("no %s within %s", what, patience.Limit)
		}
	}
}

// exits waits for the Exit messages of n tasks and returns them.
func (l *line) exits(n int) map[cluster.Task]protocol.Exit {
	l.t.Helper()
	all := map[cluster.Task]protocol.Exit{}
	for len(all) < n {
		e := *l.wait("Exited", func(m protocol.Message) bool { return m.Exited != nil }).Exited
		all[e.Task] = e
	}
	return all
}

// end ends the job and checks that no process is left.
func (l *line) end(h *testHost, grace time.Duration) {
	l.t.Helper()
	l.send(protocol.Message{End: &protocol.End{Grace: grace, Verdict: protocol.Verdict{Reason: "done"}}})
	l.gone(h)
}

// closed waits until the agent has closed the connection.
func (l *line) closed() {
	l.t.Helper()
	limit := time.After(patience.Limit)
	for {
		select {
		case _, open := <-l.in:
			if !open {
				return
			}
		case <-limit:
			l.t.Fatal("the stream did not end")
		}
	}
}

// leave closes the driver's connection, and waits until the agent has noticed
// that.
func (l *line) leave() {
	l.t.Helper()
	l.conn.Close()
	eventually(l.t, "the agent misses its driver", func() bool {
		text, err := os.ReadFile(l.host.folder().Log())
		return err == nil && strings.Contains(string(text), "the driver has disconnected")
	})
}

// gone waits until the agent process has exited with status 0, checks that no
// process is left, and returns the job's last state.
func (l *line) gone(h *testHost) protocol.State {
	l.t.Helper()
	return l.goneWith(h, 0)
}

// goneWith is like gone for an agent process that exits with status code.
func (l *line) goneWith(h *testHost, code int) protocol.State {
	l.t.Helper()
	select {
	case <-l.ended:
	case <-time.After(patience.Limit):
		l.t.Fatal("the process that spoke with the launcher did not end")
	}
	if l.code != code {
		l.t.Errorf("the process that spoke with the launcher ended with %d, want %d: %s", l.code, code, l.stderr)
	}
	if left, err := process.OfJob(h.spec.Job, ""); err != nil || len(left) > 0 {
		for _, p := range left {
			cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
			l.t.Logf("%+v %q", p, cmdline)
		}
		l.t.Errorf("left when the process that spoke with the launcher had ended: %v, %v", left, err)
	}
	state, err := h.folder().ReadState()
	if err != nil {
		l.t.Fatal(err)
	}
	if state.Phase != protocol.Over || state.Verdict == nil {
		l.t.Errorf("state.json says %s, verdict %v", state.Phase, state.Verdict)
	}
	if _, err := os.Stat(h.folder().Secret()); !errors.Is(err, os.ErrNotExist) {
		l.t.Errorf("the secret is still there: %v", err)
	}
	return state
}

// eventually waits until ok returns true. It polls often at first and less
// often later.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	pause := 5 * time.Millisecond
	for deadline := time.Now().Add(patience.Limit); !ok(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience.Limit, what)
		}
		pause = min(pause*11/10, 100*time.Millisecond)
	}
}

// spool returns the content of a task's log file.
func (h *testHost) spool(name string) string {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.folder().Logs(), name))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}

// prints waits until a task has printed line.
func (h *testHost) prints(name, line string) {
	h.t.Helper()
	eventually(h.t, name+" says "+line, func() bool {
		text, err := os.ReadFile(filepath.Join(h.folder().Logs(), name))
		return err == nil && slices.Contains(strings.Split(string(text), "\n"), line)
	})
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}
