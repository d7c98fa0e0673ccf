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
	samples    []sample  // of the last 15 minutes, oldest first
	marked     time.Time // when the task last left a mark; at first the time of the first sample
	busy       time.Time // when the task was last busy or left a mark
}

// sample is one element of a series, with sums since the first.
type sample struct {
	at time.Time
	protocol.Sample
}

func newSeries(t Target, now time.Time) *series {
	return &series{generation: t.Generation, pid: t.PID, marked: now, busy: now}
}

// add takes the next measure. every is the time between two of them.
func (s *series) add(m measure, now time.Time, every time.Duration) {
	next := sample{at: now}
	if n := len(s.samples); n > 0 {
		next.Sample = s.samples[n-1].Sample
		moved := s.last.until(m)
		next.Network += moved.Network
		next.Files += moved.Files
		next.CPU += moved.CPU
		late := now.Sub(s.samples[n-1].at)
		switch {
		case marks(moved) || late > 3*every+time.Second: // the host itself stood still
			s.marked, s.busy = now, now
		case moved.CPU*100 >= late*idle, m.gpu >= idle:
			s.busy = now
		}
	}
	next.Output, next.Step = m.output, m.step
	s.last = m
	s.samples = append(s.samples, next)
	for len(s.samples) > 0 && now.Sub(s.samples[0].at) > keep {
		s.samples = s.samples[1:]
	}
}

// until returns what a task has done between two measures.
func (m measure) until(next measure) protocol.Sample {
	return protocol.Sample{
		Output:  next.output - m.output,
		Step:    next.step - m.step,
		CPU:     time.Duration(grown(m.cpu, next.cpu)) * time.Second / process.TicksPerSecond,
		Network: int64(grown(m.net, next.net)),
		Files:   int64(grown(m.files, next.files)),
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

// marks reports whether what a task has done between two samples is a mark.
func marks(s protocol.Sample) bool {
	return s.Output != 0 || s.Step != 0 || s.Network > chatter || s.Files > murmur
}

// activity returns what the task does. history adds the samples.
func (s *series) activity(now time.Time, history bool) *protocol.Activity {
	a := &protocol.Activity{PID: s.pid, Step: s.last.step, Still: now.Sub(s.busy), Quiet: now.Sub(s.marked)}
	if !history {
		return a
	}
	for _, one := range s.samples {
		one.Ago = now.Sub(one.at)
		a.History = append(a.History, one.Sample)
	}
	return a
}
