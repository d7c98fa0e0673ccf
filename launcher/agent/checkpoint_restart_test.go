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

// greets waits until the agent has read the hello of worker:0 of a generation. What the
// task prints comes another way and tells nothing of that.
func (h *testHost) greets(generation int) {
	h.t.Helper()
	eventually(h.t, "worker:0 says hello", func() bool {
		s, err := h.folder().ReadState()
		now := s.Tasks["worker:0"]
		return err == nil && s.Generation == generation && now != nil && now.Native
	})
}

// said waits until worker:0 has printed exactly text, in all its generations.
func (h *testHost) said(text string) {
	h.t.Helper()
	eventually(h.t, "worker:0 says "+text, func() bool { return h.spool("worker-0.stdout") == text })
}

// The agent asks the chief of each generation, and its answer names the generation: a
// driver drops answers of earlier ones.
func TestCheckpointReplyNamesItsGeneration(t *testing.T) {
	h := newHost(t, 1, "native", "save=7", "stop", "finished")
	l, _ := h.launch()
	for generation := range 2 {
		if generation > 0 {
			l.run(generation)
		}
		h.greets(generation)
		for range 2 { // asked again, as after a lost connection
			if said := l.saves(); said.Generation != generation || said.Message.Step != 7 || said.Message.Cause != "" {
				t.Errorf("generation %d: %+v", generation, said)
			}
		}
	}
	l.end(h, 0)
}

// A chief that was asked and ends with its generation has not saved. The agent asks the
// next chief again.
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
		return m.Said != nil && m.Said.Message.Kind == cluster.Checkpoint
	}).Said
	if said.Generation != 0 || !strings.Contains(said.Message.Cause, "worker:0 ended before it had saved") {
		t.Errorf("%+v", said)
	}
	l.run(1)
	ask(1, "ready\nready\nready\nready\n")
	l.end(h, 0)
}

// A job that has no tasks on a host goes on if that host is taken away.
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
	// A later generation has tasks here, so the job ends.
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
