package server

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// connections are those of the workers that come to a server. The Server's mu
// guards peers and closing.
type connections struct {
	server  *Server
	peers   []*peer       // by rank; nil: not there
	closing bool          // nobody is let in any more
	turned  chan struct{} // a token per worker that was refused
}

// meet serves a connection to its end.
func (c *connections) meet(from peers.Peer) {
	p := newPeer(from, c.server)
	defer p.session.Close() // of no more use, whatever it says
	defer close(p.over)
	defer p.session.Drain()
	if err := c.register(p); err != nil {
		c.refuse(p, p.difference(err))
		return
	}
	err := p.serve()
	if errors.Is(err, errUnsaid) && c.forget(p) {
		p.introduced()
		return
	}
	switch {
	case err == nil:
	case p.tolerable(err):
		p.lose(err)
	default:
		c.server.End(p.session.Blame(err))
	}
	p.introduced()
}

// refuse tells a worker why it is not let in. It waits a little until the
// worker has hung up: a close with something unread would discard the reason.
func (c *connections) refuse(p *peer, why error) {
	c.server.logf("refused %s from %s: %v", p.session.Task, p.session.Addr, why)
	p.session.Refuse(why, message.Farewell)
	select {
	case c.turned <- struct{}{}:
	default: // nobody counts any more
	}
}

// all returns the peers that are there.
func (c *connections) all() []*peer {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.peers), func(p *peer) bool { return p == nil })
}

func (c *connections) register(p *peer) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.closing && c.server.roll.serves(p.session.Task) {
		return cmp.Or(c.server.Err(), transition.ErrEnded)
	}
	if err := c.server.roll.enter(p.session.Task, p.session.Addr); err != nil {
		return err
	}
	c.peers[p.rank] = p
	return nil
}

// forget lets a worker come again whose connection ended before it said
// anything: it may have heard, while it was still dialling, why there will be
// no training. That is for others to tell; if it is dead it will be missed.
func (c *connections) forget(p *peer) bool {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.closing {
		return false
	}
	c.peers[p.rank] = nil
	c.server.roll.forget(p.rank)
	return true
}

// close lets nobody in any more.
func (c *connections) close() {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.closing = true
}

// farewell tells every peer why the training ended, if it ended badly, and
// hangs up: at once on those that are done, in bounded time on all.
func (c *connections) farewell() {
	c.close()
	var telling sync.WaitGroup
	for _, p := range c.all() {
		telling.Go(func() {
			if err := c.server.Err(); err != nil {
				p.session.Tell(err, message.Farewell)
			}
			p.session.Close()
			<-p.over
		})
	}
	telling.Wait()
	c.server.running.Wait()
}

// linger tells workers that come late why a training ended before it began,
// for a short while: they would take a closed listener for a dead holder.
func (c *connections) linger(ctx context.Context) {
	c.server.mu.Lock()
	opened, absent := c.server.opened, c.server.roll.absent()
	c.server.mu.Unlock()
	timer := time.NewTimer(message.Farewell)
	defer timer.Stop()
	for ; absent > 0 && c.server.Err() != nil && !opened; absent-- {
		select {
		case <-c.turned:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// hearOut gives workers that are here a moment to declare. They take this task
// for a holder and the chief does not, so the difference is the reason why
// there will be no training.
func (c *connections) hearOut(chief *peer) {
	ctx, cancel := context.WithTimeout(c.server.ctx, message.Farewell)
	defer cancel()
	c.close() // a worker that comes now is told the difference
	for _, p := range c.all() {
		if p == chief {
			continue
		}
		select {
		case <-p.known:
		case <-ctx.Done():
			return
		}
	}
}

// write begins to write to all workers, and lets those that contribute to shards
// hear their events.
func (c *connections) write(e *aggregate.Shards, m *members) {
	var writers []*writer
	for rank, p := range c.peers {
		if p == nil {
			continue
		}
		w := newWriter(e, p)
		writers = append(writers, w)
		if e.Contributor(rank) != nil {
			events := make(chan aggregate.Event, e.Events()+4+len(c.peers)) // a step, and what may come in addition
			w.hear(events)
			m.hears(rank, p.takes(events))
			for _, shard := range e.All() {
				shard.Keep(e.Audience(rank)) // others may begin before it has them
			}
		}
	}
	for _, w := range writers {
		c.server.running.Go(w.run)
	}
}

// succeed lets shards tell all workers whom the shards before told, whose last
// event that is.
func (c *connections) succeed(next *aggregate.Shards, m, before *members, step uint64) {
	for rank, p := range c.peers {
		if p != nil && next.Contributor(rank) != nil {
			events := make(chan aggregate.Event, next.Events()+4)
			m.hears(rank, p.takes(events))
			before.Tell(rank, succeeds{next, events, step}) // there is room: nothing else is on its way
		}
	}
}

// announce tells all workers from which step on a lost one counts in none.
func (c *connections) announce(lost int, counts uint64) {
	frame := wire.Frame{Header: wire.Header{Kind: wire.Without, Part: uint32(lost), Step: counts}}
	for rank := range c.peers {
		if rank != lost {
			c.server.members.Tell(rank, message.Sends(frame))
		}
	}
}

// members is the aggregate.Host of one server's shards: those who are told of
// steps.
type members struct {
	values func(layout.Piece) []byte // where dense values are kept; nil: the shards make memory
	tell   []func(aggregate.Event)   // by rank; never blocks; set before the first step
	fail   func(error)               // ends the training
}

func newMembers(n int, fail func(error), values func(layout.Piece) []byte) *members {
	return &members{values: values, tell: make([]func(aggregate.Event), n), fail: fail}
}

// hears makes tell hear the events of a rank.
func (m *members) hears(rank int, tell func(aggregate.Event)) { m.tell[rank] = tell }

func (m *members) Memory(p layout.Piece) []byte {
	if m.values == nil {
		return nil
	}
	return m.values(p)
}

func (m *members) Tell(rank int, e aggregate.Event) { m.tell[rank](e) }

func (m *members) Fail(err error) { m.fail(err) }
