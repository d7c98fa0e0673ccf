//go:build linux

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// Preparing the next generation kills tasks that still run, and all processes
// that tasks have left.
func TestPrepareKillsThePreviousGeneration(t *testing.T) {
	h, l, pids := stubborn(t)
	if p := l.ask(1, h.spec.Tasks); p.Error != "" {
		t.Fatalf("prepare: %s", p.Error)
	}
	if left, err := process.OfJob(h.spec.Job, ""); err != nil || len(left) != 1 {
		t.Errorf("%d processes of the job, %v, want the supervisor alone", len(left), err)
	}
	if state, _ := h.folder().ReadState(); state.Generation > 1 {
		t.Errorf("generation %d", state.Generation)
	}
	next := l.run(1)
	if next[worker(0)] == pids[worker(0)] || next[worker(0)] == 0 {
		t.Errorf("pids %v, %v before", next, pids)
	}
	l.end(h, 0)
}

func TestPrepareRefusesAnEndedGeneration(t *testing.T) {
	h := newHost(t, 1, "wait")
	l, _ := h.start()
	go l.renew(time.Second)
	old, reserved := l.prepare(2)
	if p := l.ask(1, h.spec.Tasks); !strings.Contains(p.Error, "generation 1 is over") {
		t.Errorf("generation 1 after 2: %+v", p)
	}
	l.send(protocol.Message{Start: &protocol.Start{Generation: 1, Addresses: protocol.NewAddresses(old, reserved)}})
	l.wait("a refusal", func(m protocol.Message) bool {
		if m.Started != nil {
			t.Fatal("an old generation was started")
		}
		return strings.Contains(m.Notice, "cannot start generation 1")
	})
	l.run(2)
	h.prints("worker-0.stdout", "ready")
	if p := l.ask(2, h.spec.Tasks); !strings.Contains(p.Error, "the next one here is 3") {
		t.Errorf("generation 2 once it was started: %+v", p)
	}
	l.end(h, 0)
}

// An agent that replaces a dead one refuses the generations that the dead one
// has run. It leaves the tasks' folders and logs as they are.
func TestNewAgentContinuesInTheOldFolder(t *testing.T) {
	h, l, _ := ready(t, "wait")
	kept := filepath.Join(h.folder().Task(worker(0)), "kept")
	if err := os.WriteFile(kept, []byte("by the program"), 0o600); err != nil {
		t.Fatal(err)
	}
	state, _ := h.folder().ReadState()
	kill(t, state.Supervisor)
	l.goneWith(h, codeNoAgent)
	l, state = h.start()
	go l.renew(time.Second)
	if state.Phase != protocol.Idle || state.Verdict != nil {
		t.Errorf("the new agent's state is %+v", state)
	}
	if p := l.ask(0, h.spec.Tasks); !strings.Contains(p.Error, "generation 0 is over") {
		t.Errorf("the dead agent's generation: %+v", p)
	}
	l.run(1)
	eventually(t, "the new generation prints", func() bool { return h.spool("worker-0.stdout") == "ready\nready\n" })
	if text, err := os.ReadFile(kept); err != nil || string(text) != "by the program" {
		t.Errorf("%s: %q, %v", kept, text, err)
	}
	if said := h.spool("worker-0.stderr"); said != cluster.VerboseMark+"generation 1\n" { // a marker line that only -v and plx logs print
		t.Errorf("stderr %q, want a line that tells the generations apart", said)
	}
	l.end(h, 0)
}

// A generation can have other tasks on a host than the previous one.
func TestGenerationCanChangeTheTasksOfAHost(t *testing.T) {
	h := newHost(t, 2, "echo")
	l, _ := h.launch()
	l.exits(2)
	server := protocol.TaskSpec{Task: cluster.Task{Role: cluster.PS, Index: 4}}
	moved := []protocol.TaskSpec{{Task: worker(5), Devices: "1", LocalRank: 0}, {Task: worker(6), Devices: "3", LocalRank: 1}, server}
	p := l.ask(3, moved)
	if p.Error != "" || len(p.Open) != 3 || len(p.Reserved) != 3 {
		t.Fatalf("%+v", p)
	}
	spec := cluster.Spec{PS: make([]string, 5), Worker: make([]string, 7)}
	for task, addr := range p.Open {
		spec.Set(task, addr)
	}
	l.send(protocol.Message{Start: &protocol.Start{Generation: 3, Addresses: protocol.NewAddresses(spec, spec)}})
	l.exits(3)
	for name, want := range map[string]map[string]string{
		"worker-5": {"PLX_RANK": "5", "PLX_WORLD_SIZE": "7", "PLX_LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "1"},
		"worker-6": {"PLX_RANK": "6", "PLX_FIRST_WORLD_SIZE": "2", "PLX_LOCAL_RANK": "1", "PLX_LOCAL_WORLD_SIZE": "2", "CUDA_VISIBLE_DEVICES": "3"},
		"ps-4":     {"PLX_TASK_INDEX": "4", "PLX_GENERATION": "3", "CUDA_VISIBLE_DEVICES": ""},
	} {
		s := decode[seen](t, h.spool(name+".stdout"))
		for variable, value := range want {
			if got, ok := program.Lookup(asText(s.Env), variable); !ok || got != value {
				t.Errorf("%s: %s=%q, want %q", name, variable, got, value)
			}
		}
	}
	l.end(h, 0)
}

// A generation without tasks on a host ends the previous tasks there.
func TestAHostWithoutTasks(t *testing.T) {
	h, l, _ := stubborn(t)
	if p := l.ask(1, nil); p.Error != "" || len(p.Open) != 0 {
		t.Errorf("%+v", p)
	}
	l.send(protocol.Message{Start: &protocol.Start{Generation: 1}})
	s := l.wait("Started", func(m protocol.Message) bool { return m.Started != nil }).Started
	if s.Generation != 1 || len(s.PIDs) != 0 {
		t.Errorf("%+v", s)
	}
	if left, err := process.OfJob(h.spec.Job, ""); err != nil || len(left) != 1 {
		t.Errorf("%d processes of the job, %v, want the supervisor alone", len(left), err)
	}
	l.end(h, 0)
}

// A Prepare message that arrives while the agent is preparing is handled
// afterwards.
func TestPrepareDuringAPrepareIsNotLost(t *testing.T) {
	h := newHost(t, 1, "wait")
	l, _ := h.start()
	for generation := range 3 {
		l.send(protocol.Message{Prepare: &protocol.Prepare{Generation: generation, Tasks: h.spec.Tasks}})
	}
	p := l.wait("the last Prepared", func(m protocol.Message) bool { return m.Prepared != nil && m.Prepared.Generation == 2 }).Prepared
	if p.Error != "" {
		t.Errorf("%+v", p)
	}
	l.end(h, 0)
}

func TestAFrozenTaskIsKilledAndReported(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	h := newHost(t, 2, "native", "beats")
	h.spec.Freeze = 3 * time.Second
	l, pids := h.launch()
	h.prints("worker-0.stdout", "ready")
	h.prints("worker-1.stdout", "ready")
	if err := unix.Kill(pids[worker(1)], unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	said := l.wait("the report", func(m protocol.Message) bool {
		return m.TaskReport != nil && m.TaskReport.Message.Kind == cluster.Failed
	}).TaskReport
	if said.Task != worker(1) || !strings.Contains(said.Message.Cause, "froze: no heartbeat for 3s") {
		t.Errorf("%+v", said)
	}
	if e := l.exits(1)[worker(1)]; e.Signal != int(unix.SIGKILL) || e.StopRequested || !strings.Contains(e.Cause, "froze") {
		t.Errorf("%+v", e)
	}
	ended := time.Now()
	l.wait("worker:0 to live on", func(m protocol.Message) bool {
		if m.Exited != nil {
			t.Errorf("worker:0, which goes on, has ended: %+v", m.Exited)
		}
		return m.Exited != nil || m.Renewed != nil && time.Since(ended) > h.spec.Freeze
	})
	l.end(h, 0)
}

// A program without plx's trainer sends no heartbeats, and is not killed for
// that.
func TestAForeignTaskDoesNotFreeze(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	h := newHost(t, 1, "wait")
	h.spec.Freeze = time.Second
	l, _ := h.launch()
	begun := time.Now()
	l.wait("some beats", func(m protocol.Message) bool {
		return m.Exited != nil || m.Renewed != nil && time.Since(begun) > 4*time.Second
	})
	if s, _ := h.folder().ReadState(); s.Tasks["worker:0"].Exit != nil {
		t.Errorf("%+v", s.Tasks["worker:0"].Exit)
	}
	l.end(h, 0)
}
