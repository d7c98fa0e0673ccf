package owner

import (
	"errors"
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// Snapshot is a copy of all that one owner has. It is whose it is given to;
// the Declaration must not be changed.
type Snapshot struct {
	Step        uint64       // steps that the chief has made
	Declaration *Declaration // with the pieces of the time
	Owner       cluster.Task
	Pieces      []Kept
	Held        time.Duration // the training, for the copy
}

// Save makes every owner that has pieces hand a copy of them to its
// configuration's Save. The chief calls it between two steps, at most once
// before each, and may after the last one. It does not wait for the copies:
// owners make them before they read what the chief sends next.
//
// Where workers are in step the copies of all owners are of the same moment,
// and [Outcome] of the next step tells every worker of it. In other modes each
// piece is as it is when it is copied, with no gradient half in, and nobody
// is told.
func (c *Client) Save() error {
	if err := c.working(); err != nil {
		return err
	}
	switch self := c.config.Peers.Self; {
	case !self.IsChief():
		return fmt.Errorf("%s saves, which is for %s to do", self, cluster.Chief)
	case c.config.Save == nil:
		return fmt.Errorf("%s saves and was not configured to: nobody would take the copies", self)
	case c.within:
		return fmt.Errorf("saved between two steps, not in step %d", c.step)
	case c.saved == c.step+1:
		return fmt.Errorf("saved twice before step %d", c.step)
	}
	c.saved = c.step + 1
	owns := c.layout.Load().owns
	for i, l := range c.links {
		if l == nil || !owns[i] {
			continue
		}
		if err := l.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Save, Step: c.step}}); err != nil {
			l.sendFailed(err)
			return c.working()
		}
	}
	if c.local != nil && !c.local.idle() {
		if err := c.local.server.save(c.local.serves.Load().engine, c.step); err != nil {
			c.fail(err)
		}
	}
	return c.working()
}

// save takes the chief's word that everything is to be saved. Where workers
// are in step its own must be over: the others cannot go on without it, so
// every owner has made as many.
func (p *peer) save(h wire.Header) error {
	e := p.server.engine
	inStep := e.d.Sync.Together()
	switch {
	case !p.task.IsChief() || e.relay != nil:
		return fmt.Errorf("unexpected %s frame", h.Kind)
	case h.Length != 0 || p.need > 0 || inStep && h.Step != p.step:
		return fmt.Errorf("%s frame for step %d, with %d bytes, during step %d, with %d gradients to come",
			h.Kind, h.Step, h.Length, p.step, p.need)
	case p.saved == h.Step+1:
		return fmt.Errorf("saves twice before step %d", h.Step)
	}
	p.saved = h.Step + 1
	if inStep {
		select {
		case <-p.turn:
			p.turn <- struct{}{} // only the end of a step brings another
		case <-p.server.ended:
			return errEnded
		}
	}
	return p.server.save(e, h.Step)
}

// save hands on a copy of what an engine has.
func (s *server) save(e *engine, step uint64) error {
	e.noteSave(step)
	slots := e.lasting()
	if len(slots) == 0 {
		return nil
	}
	if s.keep == nil {
		return s.own(errors.New("is to save its variables and was not configured to"))
	}
	snapshot := Snapshot{Step: step, Declaration: e.d, Owner: s.self}
	began := time.Now()
	for _, slot := range slots {
		snapshot.Pieces = append(snapshot.Pieces, slot.preserve())
	}
	snapshot.Held = time.Since(began)
	s.keep(snapshot)
	return nil
}

// noteSave makes the outcome of a step tell that there was a save before it.
func (e *engine) noteSave(step uint64) {
	if !e.d.Sync.Together() {
		return
	}
	g := e.groups[0]
	g.mu.Lock()
	defer g.mu.Unlock()
	g.saved = step + 1
}

// own makes err one of this task itself, which others hear of.
func (s *server) own(err error) error {
	return &peers.PeerError{Task: s.self, Addr: s.cluster.Addr(s.self), Err: err}
}
