package exchange

import (
	"errors"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
)

// errNothing ends a server without an error.
var errNothing = errors.New("owns nothing")

// declare takes what a worker is about to train. The chief's word is what the
// others are compared with; whoever is first starts the clock.
func (s *server) declare(p *peer, d *layout.Declaration) error {
	if err := d.Check(); err != nil {
		return err
	}
	if len(d.Workers) != len(s.peers) {
		return fmt.Errorf("declares %d workers, the job has %d", len(d.Workers), len(s.peers))
	}
	p.conn.SetSilence(time.Duration(d.SilenceMillis) * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.declared[p.task.Index] = d
	s.startClock(d)
	if err := s.compare(); err != nil {
		return err
	}
	if !p.task.IsChief() || s.shards != nil {
		return nil
	}
	if d.HolderIndex(s.self) < 0 {
		return errNothing
	}
	m := newMembers(len(d.Workers), s.end, noMemory)
	shards, err := aggregate.New(d, s.self, m)
	if err != nil {
		return err
	}
	s.take(shards, m)
	if d.Checkpoint != "" {
		return s.startRestore()
	}
	return nil
}

// startClock needs s.mu. A worker that holds nothing waits for nobody.
func (s *server) startClock(d *layout.Declaration) {
	if s.late == nil && (s.local == nil || s.shards != nil) {
		limit := time.Duration(d.StartMillis) * time.Millisecond
		s.late = time.AfterFunc(limit, func() { s.tooLate(limit) })
	}
}

// compare needs s.mu. Its error blames the first worker that departs.
func (s *server) compare() error {
	chief, of := s.declared[0], cluster.Chief
	if chief == nil && s.local != nil && (s.shards == nil || s.relay != nil) {
		chief, of = s.declared[s.self.Index], s.self // the chief does not come here
	}
	if chief == nil {
		return nil
	}
	for rank, d := range s.declared {
		if d == nil {
			continue
		}
		what := chief.Difference(d)
		if what == "" {
			continue
		}
		err := fmt.Errorf("declares something else than %s: %s", of, what)
		if s.peers[rank] == nil { // this worker itself
			return &peers.PeerError{Task: s.self, Addr: "this task", Err: err}
		}
		return &peers.PeerError{Task: worker(rank), Addr: s.peers[rank].addr, Err: err}
	}
	return nil
}

// tooLate ends a training that did not begin in time.
func (s *server) tooLate(limit time.Duration) {
	s.mu.Lock()
	opened, left := s.opened, unrestored(s.restoring)
	var missing []cluster.Task
	for rank := s.ranks.Lo; rank < s.ranks.Hi; rank++ {
		if s.declared[rank] == nil {
			missing = append(missing, worker(rank))
		}
	}
	s.mu.Unlock()
	switch {
	case opened:
	case len(missing) == 0 && left != nil:
		s.end(s.own(fmt.Errorf("not ready within %v: %s was not restored from checkpoint %q", limit, left, s.shards.Declaration().Checkpoint)))
	case len(missing) == 0:
		s.end(fmt.Errorf("not ready within %v: the chief's first values did not come", limit))
	default:
		s.end(&peers.PeerError{Task: missing[0], Addr: "never seen",
			Err: fmt.Errorf("not ready within %v: no sign of %v", limit, missing)})
	}
}

// open lets the workers step once all of them have declared the same and the
// chief's values are there.
func (s *server) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened || !s.filled || s.closing {
		return
	}
	for _, d := range s.declared[s.ranks.Lo:s.ranks.Hi] {
		if d == nil {
			return
		}
	}
	if s.compare() != nil {
		return // whose declaration it was is about to end the training
	}
	s.opened = true
	s.late.Stop()
	for rank, p := range s.peers {
		if p != nil && s.shards.Contributor(rank) != nil {
			p.events = make(chan aggregate.Event, s.shards.Events()+4+len(s.peers)) // a step, and what may come beside it
			s.members.tell[rank] = p.hear
			for _, slot := range s.shards.All() {
				slot.Keep(s.shards.Audience(rank)) // others may begin before it has them
			}
		}
	}
	for _, p := range s.peers {
		if p != nil {
			s.writers.Go(p.write)
		}
	}
	if s.local != nil {
		s.local.open()
	}
}

// advance counts p's step. Where every step needs all workers, nobody steps
// past one that has left.
func (s *server) advance(rank int, step uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, stopped := range s.stopped {
		if stopped && s.together(rank, other) && s.steps[other] <= step {
			return s.blame(other, notAsMany(s.steps[other], rank))
		}
	}
	s.steps[rank] = step + 1
	return nil
}

// blame makes err that of a worker, who need not be the one that brought it
// up. It needs s.mu.
func (s *server) blame(rank int, err error) error {
	addr := "this task"
	if p := s.peers[rank]; p != nil {
		addr = p.addr
	}
	return &peers.PeerError{Task: worker(rank), Addr: addr, Err: err}
}

// together reports whether two workers must take the same number of steps.
func (s *server) together(a, b int) bool {
	if s.shards.Declaration().Sync.Competes() {
		return false
	}
	x, y := s.shards.Contributor(a), s.shards.Contributor(b)
	return x != nil && y != nil && x.Group == y.Group
}

func notAsMany(steps uint64, other int) error {
	return fmt.Errorf("is done after %d steps, but %s goes on: every worker must take as many", steps, worker(other))
}

// stop notes, between two steps, that a worker takes no further one. It needs
// s.mu.
func (s *server) stop(rank int) error {
	if m := s.moving; m != nil {
		if err := m.Refuses("said goodbye"); err != nil {
			return err
		}
	}
	for other, n := range s.steps {
		if n > s.steps[rank] && s.together(rank, other) {
			return notAsMany(s.steps[rank], other)
		}
	}
	s.stopped[rank] = true
	return nil
}

// leave notes a worker's goodbye.
func (s *server) leave(rank int) error {
	s.mu.Lock()
	err := s.stop(rank)
	s.gone[rank] = err == nil
	s.mu.Unlock()
	if err == nil {
		s.leaves(rank)
	}
	return err
}

// parted reports whether a worker has said goodbye: it cannot be lost any
// more.
func (s *server) parted(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone[rank]
}

// left counts a worker that has its answer to a goodbye; the last one ends
// the training.
func (s *server) left() {
	s.mu.Lock()
	s.away++
	last := s.away == s.ranks.Len()
	if s.away == s.ranks.Len()-1 && !s.gone[0] {
		close(s.alone)
	}
	s.mu.Unlock()
	if last {
		s.end(nil)
	}
}

// leaves tells all that count on a worker that it sends no more.
func (s *server) leaves(rank int) {
	if s.relay != nil {
		s.relay.union.leave(rank)
	}
	s.shards.Leave(rank)
}

// begin passes on that a worker begins a step.
func (s *server) begin(rank int, step uint64, b aggregate.Beginning) error {
	if err := s.shards.Begin(rank, step, b); err != nil || s.relay == nil {
		return err
	}
	s.relay.union.begin(rank, step)
	s.relay.begin(rank, b)
	return nil
}
