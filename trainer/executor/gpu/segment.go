package gpu

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/device"
)

// segment is a row of instructions that can be recorded as one graph: only the
// first waits for feeds, only the last completes gradients, and the CPU computes
// none. Putting a graph on a stream costs the host as much as one kernel.
type segment struct {
	from, to int          // half-open range of instructions
	graph    device.Graph // nil: not recorded
}

// divide cuts the instructions into segments.
func divide(all []work) (segments []segment) {
	for i, w := range all {
		cut := i == 0 || len(w.needs) > 0 || w.host != nil || len(all[i-1].ready) > 0 || all[i-1].host != nil
		if cut {
			segments = append(segments, segment{from: i})
		}
		segments[len(segments)-1].to = i + 1
	}
	return segments
}

// put puts a segment on the stream of kernels, and the gradients that it completes
// on the stream of results. It returns the number of instructions up to the one
// that an error is about.
func (m *Machine) put(s *segment) (until int, err error) {
	for _, i := range m.work[s.from].needs {
		if err := m.compute.Wait(m.feeds.all[i].copied); err != nil {
			return s.from + 1, err
		}
	}
	if until, err := m.runSegment(s); err != nil {
		return until, err
	}
	for _, g := range m.work[s.to-1].ready {
		if err := m.send(&m.results[g]); err != nil {
			return s.to, err
		}
		m.sent = append(m.sent, g)
	}
	return s.to, nil
}

func (m *Machine) runSegment(s *segment) (until int, err error) {
	if s.graph == nil && m.checked && m.records && s.to-s.from > 1 {
		m.records = m.record(s)
	}
	if s.graph != nil {
		return s.to, m.compute.Replay(s.graph)
	}
	for i := s.from; i < s.to; i++ {
		err := m.run(&m.work[i])
		if err == nil && !m.checked {
			if err = m.settle(m.compute); err == nil {
				m.settled = i + 1
			}
		}
		if err != nil {
			return i + 1, err
		}
	}
	return s.to, nil
}

// record makes a graph of a segment. It reports whether the driver can.
func (m *Machine) record(s *segment) bool {
	g, err := m.compute.Capture(func() error {
		for i := s.from; i < s.to; i++ {
			if err := m.run(&m.work[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		// The driver is old: the kernels are launched one by one. What fails otherwise
		// fails again, and is reported.
		return false
	}
	s.graph = g
	return true
}

// forget drops the graphs: the launches have changed.
func (m *Machine) forget() error {
	for i := range m.segments {
		if g := m.segments[i].graph; g != nil {
			if err := g.Close(); err != nil {
				return fmt.Errorf("drop a graph: %w", err)
			}
		}
	}
	m.segments = divide(m.work)
	return nil
}
