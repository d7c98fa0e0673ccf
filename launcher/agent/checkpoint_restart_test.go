//go:build linux

package agent

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// greets waits until the agent has received the hello message of worker:0 in a
// generation. The task's output cannot show that, because it arrives on
// another channel.
func (h *testHost) greets(generation int) {
	h.t.Helper()
	eventually(h.t, "worker:0 says hello", func() bool {
		s, err := h.folder().ReadState()
		now := s.Tasks["worker:0"]
		return err == nil && s.Generation == generation && now != nil && now.Native
	})
}

// said waits until the log of worker:0, from all generations, is exactly text.
func (h *testHost) said(text string) {
	h.t.Helper()
	eventually(h.t, "worker:0 says "+text, func() bool { return h.spool("worker-0.stdout") == text })
}

// The agent sends a checkpoint request to the chief of each generation. Its
// reply names the generation, because a driver ignores replies of earlier
// ones.
func TestCheckpointReplyNamesItsGeneration(t *testing.T) {
	h := newHost(t, 1, "native", "save=7", "stop", "finished")
	l, _ := h.launch()
	for generation := range 2 {
		if generation > 0 {
			l.run(generation)
		}
		h.greets(generation)
		for range 2 { // the second time as after a lost connection
			if said := l.saves(); said.Generation != generation || said.Message.Step != 7 || said.Message.Cause != "" {
				t.Errorf("generation %d: %+v", generation, said)
			}
		}
	}
	l.end(h, 0)
}

// If the chief ends with its generation before it replies, the reply is an
// error. The agent can then ask the chief of the next generation.
func TestCheckpointRequestEndsWithItsGeneration(t *testing.T) {
	h := newHost(t, 1, "native", "asked", "deaf")
	l, _ := h.launch()
	ask := func(generation int, said string) {
		t.Helper()
		h.greets(generation)
		l.send(protocol.Message{Checkpoint: &protocol.Checkpoint{}})
		h.said(said)
	}
	ask(0, "ready\nready\n")
	l.send(protocol.Message{Prepare: &protocol.Prepare{Generation: 1, Tasks: h.spec.Tasks}})
	said := l.wait("Said checkpoint", func(m protocol.Message) bool {
		return m.TaskReport != nil && m.TaskReport.Message.Kind == cluster.Checkpoint
	}).TaskReport
	if said.Generation != 0 || !strings.Contains(said.Message.Cause, "worker:0 ended before it had saved") {
		t.Errorf("%+v", said)
	}
	l.run(1)
	ask(1, "ready\nready\nready\nready\n")
	l.end(h, 0)
}

// If a host is preempted that has no tasks of the job, the job continues.
func TestPreemptionOfAHostWithoutTasksDoesNotEndTheJob(t *testing.T) {
	h := newHost(t, 1, "wait")
	l, _ := h.launch()
	h.said("ready\n")
	l.ask(1, nil)
	l.send(protocol.Message{Start: &protocol.Start{Generation: 1}})
	l.wait("Started", func(m protocol.Message) bool { return m.Started != nil && m.Started.Generation == 1 })
	state, err := h.folder().ReadState()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(state.Supervisor, unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	l.wait("a notice", func(m protocol.Message) bool {
		if m.StopAsk != nil {
			t.Fatalf("asked to stop: %+v", m.StopAsk)
		}
		return strings.Contains(m.Notice, "the job has no tasks on it and continues")
	})
	// The next generation has tasks on this host again, so a preemption ends
	// the job.
	l.run(2)
	h.said("ready\nready\n")
	if err := unix.Kill(state.Supervisor, unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if ask := l.wait("StopAsk", func(m protocol.Message) bool { return m.StopAsk != nil }).StopAsk; ask.SaveTime != patience.Limit {
		t.Errorf("%+v", ask)
	}
	l.end(h, time.Second)
}
