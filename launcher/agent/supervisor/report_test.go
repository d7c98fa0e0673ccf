//go:build linux

package supervisor

import (
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

func TestReportOfATask(t *testing.T) {
	var r report
	for _, m := range []cluster.ControlMessage{
		{Kind: cluster.Hello, Version: cluster.ControlVersion},
		{Kind: cluster.Heartbeat, Step: 7, From: 5},
		{Kind: cluster.Heartbeat, Step: 6, From: 5}, // overtaken
		{Kind: cluster.Checkpoint, Step: 9},
		{Kind: cluster.Heartbeat},
	} {
		r.receive(m)
	}
	if !r.native || r.step != 9 || r.progress == nil || r.progress.Step != 6 || r.cause != "" || r.finished {
		t.Errorf("%+v", r)
	}
	r.receive(cluster.ControlMessage{Kind: cluster.Failed, Step: 10, Cause: "broken", Peer: "worker:1 on gpu02"})
	r.receive(cluster.ControlMessage{Kind: "from a later version", Step: 99})
	if r.step != 10 || r.failed == nil || r.cause != "broken" || r.lostPeer != "worker:1 on gpu02" {
		t.Errorf("after it failed: %+v", r)
	}
	r.receive(cluster.ControlMessage{Kind: cluster.Hello, Version: cluster.ControlVersion + 1})
	if !strings.Contains(r.cause, "build both from one release") {
		t.Errorf("cause of another version: %q", r.cause)
	}
}

// Heartbeats are forwarded once a second, and additionally at the first step
// of a generation.
func TestForwardNow(t *testing.T) {
	var r report
	for i, test := range []struct {
		step int64
		want bool
	}{{5, true}, {5, false}, {6, true}, {7, false}} {
		r.receive(cluster.ControlMessage{Kind: cluster.Heartbeat, Step: test.step, From: 5})
		if got := r.forwardNow(); got != test.want {
			t.Errorf("heartbeat %d of step %d is passed on: %v", i, test.step, got)
		}
	}
}

func TestFreezeIsCountedInBeats(t *testing.T) {
	var r report
	for range 3 {
		if r.froze(3 * beat) {
			t.Fatal("frozen too early")
		}
	}
	r.receive(cluster.ControlMessage{Kind: cluster.Heartbeat})
	for i := range 4 {
		if got := r.froze(3 * beat); got != (i == 3) {
			t.Errorf("frozen after beat %d: %v", i, got)
		}
	}
	if !strings.Contains(r.cause, "no heartbeat for 3s") {
		t.Errorf("cause %q", r.cause)
	}
}

// A job that is ending can neither be prepared nor started again.
func TestPhaseOverIsFinal(t *testing.T) {
	r := &record{State: protocol.State{Phase: protocol.Idle, Least: 2}}
	r.enter(protocol.Ready)
	if s := r.snapshot(nil); s.Phase != protocol.Ready || s.Least != 2 || !r.changed {
		t.Errorf("prepared: %+v", s)
	}
	r.enter(protocol.Stopping)
	r.enter(protocol.Ready)
	r.enter(protocol.Running)
	if !r.ending() || r.Phase != protocol.Stopping {
		t.Errorf("phase %s after the end had begun", r.Phase)
	}
	r.enter(protocol.Over)
	if s := r.snapshot(nil); s.Phase != protocol.Over {
		t.Errorf("concluded: %+v", s)
	}
}

func TestStepsArePublishedOncePerSecond(t *testing.T) {
	r := &record{}
	now := time.Now()
	r.shown = now
	r.stepped = true
	if r.due(now.Add(showEvery - 1)) {
		t.Error("steps are published too early")
	}
	if !r.due(now.Add(showEvery)) {
		t.Error("steps are not published")
	}
	r.changed = true
	if !r.due(now) {
		t.Error("a change waits")
	}
}
