//go:build linux

package sampler

import (
	"time"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
)

// series holds the newest sample of one task, and the times at which the task
// was last active.
type series struct {
	generation int
	pid        int
	last       measure
	at         time.Time // when the sample in last was taken; zero before the first sample
	progressed time.Time // when the task last made progress; before any progress, when the task was first seen
	busy       time.Time // when the task last made progress or used CPU or GPU time
}

func newSeries(t Target, now time.Time) *series {
	return &series{generation: t.Generation, pid: t.PID, progressed: now, busy: now}
}

// add adds a sample that was taken at time now. every is the planned time
// between two samples.
func (s *series) add(m measure, now time.Time, every time.Duration) {
	if !s.at.IsZero() {
		moved := s.last.until(m)
		late := now.Sub(s.at)
		switch {
		case moved.isProgress() || late > 3*every+time.Second: // the task made progress, or the sample is so late that the host itself must have been suspended
			s.progressed, s.busy = now, now
		case moved.cpu*100 >= late*idle, m.gpu >= idle:
			s.busy = now
		}
	}
	s.last, s.at = m, now
}

// motion is the activity of a task between two samples.
type motion struct {
	output, step, network, files int64
	cpu                          time.Duration
}

// until returns the task's activity between the sample m and the later sample
// next.
func (m measure) until(next measure) motion {
	return motion{
		output:  next.output - m.output,
		step:    next.step - m.step,
		cpu:     time.Duration(grown(m.cpu, next.cpu)) * time.Second / process.TicksPerSecond,
		network: int64(grown(m.net, next.net)),
		files:   int64(grown(m.files, next.files)),
	}
}

// grown returns by how much all counters together have grown from before to
// now. A counter that is missing in before started at 0.
func grown(before, now map[int]uint64) (sum uint64) {
	for name, n := range now {
		if n > before[name] {
			sum += n - before[name]
		}
	}
	return sum
}

// isProgress reports whether the activity counts as progress: output, training
// steps, or enough I/O.
func (m motion) isProgress() bool {
	return m.output != 0 || m.step != 0 || m.network > socketNoise || m.files > ioNoise
}

// activity returns how long the task has been inactive at time now.
func (s *series) activity(now time.Time) *protocol.Activity {
	return &protocol.Activity{PID: s.pid, Idle: now.Sub(s.busy), IOIdle: now.Sub(s.progressed)}
}
