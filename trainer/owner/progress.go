package owner

import "sync/atomic"

// Progress tells how far the groups of a training are on one server. Its zero
// value is one of which nothing is known; its methods may be called by any
// goroutine.
type Progress struct{ server atomic.Pointer[server] }

// Steps returns, by group, how many steps the server has applied to all of its
// pieces, those of the checkpoint included. It is nil where training has not begun,
// the server owns nothing, and where all workers take every step together: there
// the count is theirs.
func (p *Progress) Steps() []uint64 {
	s := p.server.Load()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	e, opened := s.engine, s.opened
	s.mu.Unlock()
	if !opened || len(e.slots) == 0 || e.d.Sync.Together() {
		return nil
	}
	steps := make([]uint64, len(e.groups))
	for i, g := range e.groups {
		steps[i] = g.counted()
	}
	return steps
}

// counted is how many steps of the group all slots are updated by. The one with
// which a group finds out that nobody has data is none.
func (g *group) counted() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if last := g.outcome; last.updates > 0 && last.updates == g.applied && last.leaves == 0 {
		return g.applied - 1
	}
	return g.applied
}

// Groups returns the ranks of the workers that take every step together.
func (d *Declaration) Groups() []Range { return d.Sync.groups(len(d.Workers)) }
