//go:build linux

package sampler

import (
	"time"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
)

// series is what is remembered of one task.
type series struct {
	generation int
	pid        int
	last       measure
	at         time.Time // of last; zero: none was taken
	marked     time.Time // when the task last left a mark; at first the time of the first sample
	busy       time.Time // when the task was last busy or left a mark
}

func newSeries(t Target, now time.Time) *series {
	return &series{generation: t.Generation, pid: t.PID, marked: now, busy: now}
}

// add takes the next measure. every is the time between two of them.
func (s *series) add(m measure, now time.Time, every time.Duration) {
	if !s.at.IsZero() {
		moved := s.last.until(m)
		late := now.Sub(s.at)
		switch {
		case moved.marks() || late > 3*every+time.Second: // the host itself stood still
			s.marked, s.busy = now, now
		case moved.cpu*100 >= late*idle, m.gpu >= idle:
			s.busy = now
		}
	}
	s.last, s.at = m, now
}

// motion is what a task has done between two measures.
type motion struct {
	output, step, network, files int64
	cpu                          time.Duration
}

// until returns what a task has done until the next measure.
func (m measure) until(next measure) motion {
	return motion{
		output:  next.output - m.output,
		step:    next.step - m.step,
		cpu:     time.Duration(grown(m.cpu, next.cpu)) * time.Second / process.TicksPerSecond,
		network: int64(grown(m.net, next.net)),
		files:   int64(grown(m.files, next.files)),
	}
}

// grown adds up by how much counters have grown. New ones began at 0.
func grown(before, now map[int]uint64) (sum uint64) {
	for name, n := range now {
		if n > before[name] {
			sum += n - before[name]
		}
	}
	return sum
}

// marks reports whether what a task has done is a mark.
func (m motion) marks() bool {
	return m.output != 0 || m.step != 0 || m.network > chatter || m.files > murmur
}

// activity returns what the task does.
func (s *series) activity(now time.Time) *protocol.Activity {
	return &protocol.Activity{PID: s.pid, Still: now.Sub(s.busy), Quiet: now.Sub(s.marked)}
}
