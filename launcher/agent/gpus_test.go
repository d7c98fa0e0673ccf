//go:build linux

package agent

import (
	"errors"
	"testing"

	"github.com/plx-run/plx/launcher/agent/gpulock"
	"github.com/plx-run/plx/launcher/protocol"
)

// reserve sends a GPU reservation request to the agent.
func (l *line) reserve(ask string, claims ...protocol.Claim) protocol.Reservation {
	l.t.Helper()
	return call[protocol.Reservation](l, protocol.DoReserve, protocol.Reserve{Ask: ask, Ticket: "1", Claims: claims})
}

// held reports whether any process has locked the GPU.
func held(claim protocol.Claim) bool {
	locks, err := gpulock.Take([]protocol.Claim{claim}, "1")
	gpulock.Release(locks)
	held := (*gpulock.Held)(nil)
	return errors.As(err, &held)
}

// An agent that has reserved GPUs for a launch passes the locks on to the job
// if it uses the same GPUs; else it releases them.
func TestReservedGPUsAreUsedByTheJob(t *testing.T) {
	h := newHost(t, 1, "wait")
	gpu, other := protocol.Claim{Device: "GPU-" + h.spec.Job}, protocol.Claim{Device: "GPU-other-" + h.spec.Job}
	l := h.dial("start")
	for _, c := range []struct {
		ask  string
		held bool
	}{{protocol.ReserveQueue, false}, {protocol.ReserveTake, true}, {protocol.ReserveTake, true}, {protocol.ReserveDrop, false}, {protocol.ReserveTake, true}, {protocol.ReserveLeave, false}} {
		if a := l.reserve(c.ask, other); a.Cause != "" || len(a.Ahead) > 0 || held(other) != c.held {
			t.Errorf("%s: %+v, held: %v", c.ask, a, held(other))
		}
	}
	l.reserve(protocol.ReserveTake, gpu)
	h.spec.Claims, h.spec.Ticket = []protocol.Claim{gpu}, "1"
	l.send(protocol.Message{Spec: &h.spec})
	l.wait("State", func(m protocol.Message) bool { return m.State != nil })
	if !held(gpu) {
		t.Error("the agent has no lock")
	}
	if _, err := gpulock.Enter(h.spec.Claims, "1"); err != nil {
		t.Errorf("the agent stays in the queue: %v", err)
	}
	go l.renew(h.spec.Lease / 5)
	l.run(0)
	l.end(h, 0)
	if held(gpu) {
		t.Error("the lock is still held after the job")
	}
}

// Reserved GPUs are released if the launch ends without a job, or if its agent
// is killed.
func TestReservedGPUsAreReleasedWithoutAJob(t *testing.T) {
	for name, end := range map[string]func(*line){
		"the launch ends": func(l *line) { l.conn.Close() },
		"it is killed":    func(l *line) { l.cmd.Process.Kill() },
	} {
		h := newHost(t, 1)
		gpu := protocol.Claim{Device: "GPU-" + h.spec.Job}
		l := h.dial("start")
		l.reserve(protocol.ReserveTake, gpu)
		if !held(gpu) {
			t.Errorf("%s: the agent has no lock", name)
		}
		end(l)
		<-l.ended
		if held(gpu) {
			t.Errorf("%s: the lock is still held", name)
		}
	}
}
