package gpu

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/device"
)

// segment is a sequence of instructions that can be recorded as one CUDA
// graph. The GPU computes all of them. Only the first instruction waits for
// copies to the GPU, and only the last one completes gradients. Starting a
// graph should cost the host about as much time as starting one kernel.
//
// TODO: no real GPU has run this. The cost of starting a graph was not
// measured.
type segment struct {
	from, to int          // half-open range of indices into Machine.work
	graph    device.Graph // nil if the segment was not recorded as a graph
}

// divide splits the instructions into segments, each of which can be one CUDA
// graph. A new segment begins at each instruction that must not share a graph
// with its predecessor.
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

// put starts the kernels of segment s on the compute stream. On the output
// stream, it starts the copies of the gradients that are complete after s.
// After an error, until-1 is the index of the last instruction that may have
// caused it.
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

// record records the kernels of segment s as a CUDA graph. It returns false if
// the driver cannot record the graph.
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
		// A driver older than CUDA 11.4 cannot record graphs, so runSegment
		// launches the kernels one by one. Any other error occurs again in
		// these launches, and runSegment reports it.
		return false
	}
	s.graph = g
	return true
}

// forget closes all recorded graphs, because the kernels or their parameters
// have changed, and splits the work into segments again.
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
