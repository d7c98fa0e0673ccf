//go:build linux

package supervisor

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// report is what a task has said on its control channel.
type report struct {
	native    bool                    // it said hello
	step      int64                   // the highest step that it named
	tolerates bool                    // the job goes on if another worker is lost
	finished  bool                    // it said finished
	failed    *cluster.ControlMessage // its failed; nil: none
	progress  *cluster.ControlMessage // its last message with a step; nil: none
	cause     string                  // why it failed; "" if nobody said so
	lostPeer  string                  // the peer that it blames for that
	silent    int                     // beats of the supervisor, one a second, since the task's last message
	passed    time.Time               // when a heartbeat was last passed on; zero means the next one is
}

// hear notes a message.
func (r *report) hear(m cluster.ControlMessage) {
	r.silent = 0
	switch m.Kind {
	case cluster.Hello:
		r.native = true
		if m.Version != cluster.ControlVersion {
			r.cause = fmt.Sprintf("it speaks version %d of the control channel, this plx speaks %d: build both from one release", m.Version, cluster.ControlVersion)
		}
	case cluster.Heartbeat:
		if r.step <= m.From && m.Step > m.From {
			r.passed = time.Time{} // the driver waits for the first step
		}
		r.step = max(r.step, m.Step)
	case cluster.Checkpoint:
		r.step = max(r.step, m.Step)
		return
	case cluster.Failed:
		r.cause, r.lostPeer, r.failed = m.Cause, m.Peer, &m
		r.step = max(r.step, m.Step)
	case cluster.ToleratesLoss:
		r.tolerates = true
	case cluster.Finished:
		r.finished = true
	default:
		return
	}
	if m.Step > 0 {
		r.progress = &m
	}
}

// passOn reports whether the driver is sent a heartbeat: one a second.
func (r *report) passOn() bool {
	if time.Since(r.passed) < time.Second {
		return false
	}
	r.passed = time.Now()
	return true
}

// froze counts a beat of the supervisor. It reports whether the task has sent no
// message for longer than limit, and then notes that as the cause of its failure.
func (r *report) froze(limit time.Duration) bool {
	if r.silent++; time.Duration(r.silent)*beat <= limit {
		return false
	}
	if r.cause == "" {
		r.cause = fmt.Sprintf("it froze: no heartbeat for %s", limit)
	}
	return true
}
