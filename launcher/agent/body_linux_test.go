package agent

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// regroup ends a generation of n tasks, processes to be kept, and returns the
// exits.
func (l *line) regroup(n int, grace time.Duration) map[cluster.Task]protocol.Exit {
	l.t.Helper()
	l.send(protocol.Message{Stop: &protocol.Stop{Grace: grace, Keep: true}})
	return l.exits(n)
}

// keepers launches n of them.
func keepers(t *testing.T, n int, words ...string) (*testHost, *line, map[cluster.Task]int) {
	t.Helper()
	h := newHost(t, n, append([]string{"keeper"}, words...)...)
	l, pids := h.launch()
	for i := range n {
		h.prints(fmt.Sprintf("worker-%d.stdout", i), fmt.Sprintf("worker:%d 0 in worker-%d", i, i))
	}
	return h, l, pids
}

func wantKept(t *testing.T, exits map[cluster.Task]protocol.Exit) {
	t.Helper()
	for task, e := range exits {
		if !e.Kept || !e.Told || !e.Native || e.Code != 0 || e.Cause != "" {
			t.Errorf("%s: exit %+v", task, e)
		}
	}
}

// begin prepares and starts a generation of three workers, of which the host
// has some.
func (l *line) begin(generation int, tasks []protocol.TaskSpec) (*protocol.Prepared, map[cluster.Task]int) {
	l.t.Helper()
	p := l.ask(generation, tasks)
	if p.Error != "" {
		l.t.Fatal(p.Error)
	}
	var open cluster.Spec
	for i := range 3 {
		open.Set(worker(i), "127.0.0.1:1")
	}
	for task, addr := range p.Open {
		open.Set(task, addr)
	}
	l.send(protocol.Message{Start: &protocol.Start{Generation: generation, Cluster: open, Foreign: open}})
	return p, l.wait("Started", func(m protocol.Message) bool { return m.Started != nil }).Started.PIDs
}

// A process that gives its generation up is the next one's, with its devices
// and cores, a new socket, and folder and logs of its new name.
func TestProcessGoesOnAsTheNextTask(t *testing.T) {
	h := newHost(t, 2, "keeper")
	h.spec.Bind = true
	tasks := h.spec.Tasks
	for i := range tasks {
		tasks[i].Task = worker(i + 1)
	}
	l, _ := h.start()
	go l.renew(time.Second)
	_, before := l.begin(0, tasks)
	h.prints("worker-1.stdout", "worker:1 0 in worker-1")
	h.prints("worker-2.stdout", "worker:2 0 in worker-2")
	wantKept(t, l.regroup(2, time.Minute))
	for i := range tasks { // the first of all hosts is lost: numbers move up
		tasks[i].Task = worker(i)
	}
	p, now := l.begin(1, tasks)
	if len(now) != 2 || now[worker(0)] != before[worker(1)] || now[worker(1)] != before[worker(2)] {
		t.Errorf("pids %v, %v before", now, before)
	}
	for task, addr := range p.Open {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(conn); string(text) != "hello" {
			t.Errorf("%s: %q, %v", task, text, err)
		}
		conn.Close()
	}
	h.prints("worker-0.stdout", "worker:0 1 in worker-0")
	h.prints("worker-1.stdout", "worker:1 1 in worker-1")
	if log := h.spool("worker-2.stdout"); strings.Count(log, " in ") != 1 {
		t.Errorf("the old name's log: %q", log)
	}
	wantKept(t, l.regroup(2, time.Minute))
	if p := l.ask(2, nil); p.Error != "" {
		t.Fatal(p.Error)
	}
	for task, pid := range now {
		if err := unix.Kill(pid, 0); err != unix.ESRCH {
			t.Errorf("%s, for which nothing was left: %v", task, err)
		}
	}
	if log := h.spool("worker-1.stderr"); !strings.Contains(log, "plx: generation 1\n") {
		t.Errorf("log %q", log)
	}
	l.end(h, time.Minute)
}

// What a task says of its steps when it gives a generation up is said of that one.
// It is none of the next one's.
func TestTheLastWordIsOfItsGeneration(t *testing.T) {
	h, l, _ := keepers(t, 1, "tells")
	l.send(protocol.Message{Stop: &protocol.Stop{Grace: time.Minute, Keep: true}})
	var last cluster.ControlMessage
	l.wait("Exited", func(m protocol.Message) bool {
		if m.Said != nil && m.Said.Message.Last {
			last = m.Said.Message
			if m.Said.Generation != 0 || last.Step != 7 || last.From != 4 || last.Group != 1 || last.Groups != 2 {
				t.Errorf("%+v", m.Said)
			}
		}
		return m.Exited != nil
	})
	if !last.Last {
		t.Error("its last word did not come before its exit")
	}
	l.begin(1, h.spec.Tasks)
	h.prints("worker-0.stdout", "worker:0 1 in worker-0")
	l.send(protocol.Message{Attach: &protocol.Attach{Conductor: true}})
	state := l.wait("State", func(m protocol.Message) bool { return m.State != nil && m.State.Generation == 1 }).State
	if now := state.Tasks["worker:0"]; now.Word != nil || now.Step != 0 {
		t.Errorf("in the next generation: %+v", now)
	}
	l.end(h, time.Minute)
}

// A process is for the devices that it was started with.
func TestProcessKeepsItsDevices(t *testing.T) {
	h, l, pids := keepers(t, 1)
	wantKept(t, l.regroup(1, time.Minute))
	h.spec.Tasks[0].Devices = "5"
	if now := l.run(1); now[worker(0)] == pids[worker(0)] || now[worker(0)] == 0 {
		t.Errorf("pids %v, %v before", now, pids)
	}
	h.prints("worker-0.stdout", "worker:0 1 in worker-0")
	l.end(h, time.Minute)
}

// Failures while processes wait: the next generation has new ones, and an end
// leaves none.
func TestWaitingProcessIsLost(t *testing.T) {
	for _, c := range []struct {
		name   string
		before bool // Prepare
	}{{"before it is chosen", true}, {"once it is chosen", false}} {
		t.Run(c.name, func(t *testing.T) {
			h, l, pids := keepers(t, 2)
			wantKept(t, l.regroup(2, time.Minute))
			lose := func() {
				kill(t, pids[worker(0)])
				eventually(t, "it is gone", func() bool { return unix.Kill(pids[worker(0)], 0) == unix.ESRCH })
			}
			if c.before {
				lose()
			}
			spec, foreign := l.prepare(1)
			if !c.before {
				lose()
			}
			l.send(protocol.Message{Start: &protocol.Start{Generation: 1, Cluster: spec, Foreign: foreign}})
			now := l.wait("Started", func(m protocol.Message) bool { return m.Started != nil }).Started.PIDs
			if now[worker(1)] != pids[worker(1)] || now[worker(0)] == pids[worker(0)] || now[worker(0)] == 0 {
				t.Errorf("pids %v, %v before", now, pids)
			}
			h.prints("worker-0.stdout", "worker:0 1 in worker-0")
			l.end(h, time.Minute)
		})
	}
}

// What waits is ended with the job, however that ends.
func TestWaitingProcessesEnd(t *testing.T) {
	for name, end := range map[string]func(h *testHost, l *line){
		"in time":              func(h *testHost, l *line) { l.end(h, time.Minute) },
		"at once":              func(h *testHost, l *line) { l.end(h, 0) },
		"without a supervisor": func(h *testHost, l *line) { state, _ := readState(h.folder()); kill(h.t, state.Supervisor); l.gone(h) },
		"without a guardian":   func(h *testHost, l *line) { state, _ := readState(h.folder()); kill(h.t, state.Guardian); l.gone(h) },
	} {
		t.Run(name, func(t *testing.T) {
			h, l, _ := keepers(t, 2)
			wantKept(t, l.regroup(2, time.Minute))
			end(h, l)
		})
	}
}

// One that does not give its generation up is killed, as ever.
func TestDeafProcessIsNotKept(t *testing.T) {
	h, l, pids := keepers(t, 1, "deaf")
	if e := l.regroup(1, 300*time.Millisecond)[worker(0)]; e.Kept || e.Signal == 0 {
		t.Errorf("exit %+v", e)
	}
	if now := l.run(1); now[worker(0)] == pids[worker(0)] {
		t.Errorf("pids %v, %v before", now, pids)
	}
	l.end(h, 0)
}

// One that has failed for want of a peer is a running task until it is told
// what to do; told to end after all, it does.
func TestProcessThatFailedIsToldToEnd(t *testing.T) {
	h, l, _ := keepers(t, 1, "lost")
	l.wait("its word", func(m protocol.Message) bool {
		return m.Said != nil && m.Said.Message.Kind == cluster.Failed && m.Said.Message.Keeps
	})
	l.send(protocol.Message{Stop: &protocol.Stop{Grace: time.Minute}})
	if e := l.exits(1)[worker(0)]; e.Kept || e.Code != 7 || !e.Told || e.LostPeer != "worker:9" {
		t.Errorf("exit %+v", e)
	}
	l.end(h, time.Minute)
}
