package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// connections holds the connections from workers to a server. The mutex mu of
// the Server guards peers and closing.
type connections struct {
	server   *Server
	peers    []*peer       // connected workers, indexed by rank; nil means that the worker is not connected
	closing  bool          // true if the server refuses all workers that connect from now on
	refusals chan struct{} // receives a token for every worker that the server refused; linger counts them
}

// meet serves the connection of one worker until it ends. If the server
// refuses the worker, meet sends the reason.
func (c *connections) meet(from peers.Peer) {
	p := newPeer(from, c.server)
	defer p.session.Close() // ignore the error: nothing more is sent or received
	defer close(p.over)
	defer p.session.Drain()
	if err := c.register(p); err != nil {
		err = p.difference(err)
		c.server.logf("refused %s from %s: %v", from.Task, from.Addr, err)
		p.session.Refuse(err, message.Farewell)
		select {
		case c.refusals <- struct{}{}:
		default: // linger has already returned, so no goroutine receives the token
		}
		return
	}
	err := p.serve()
	switch {
	case err == nil, errors.Is(err, errNoFrame) && c.forget(p):
	case p.tolerable(err):
		p.lose(err)
	default:
		c.server.End(p.session.Blame(err))
	}
}

// register admits a worker. It returns an error with the reason if the server
// refuses the worker.
func (c *connections) register(p *peer) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.closing && c.server.workers.serves(p.session.Task) {
		return cmp.Or(c.server.Err(), transition.ErrEnded)
	}
	if err := c.server.workers.enter(p.session.Task, p.session.Addr); err != nil {
		return err
	}
	c.peers[p.rank] = p
	return nil
}

// forget lets a worker connect again if its connection ended before it sent a
// frame. Either that worker has died: then tooLate later reports it as
// missing. Or another task has told it that the training failed: then that
// task tells this server too. forget returns false if the server is closing.
func (c *connections) forget(p *peer) bool {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.closing {
		return false
	}
	c.peers[p.rank] = nil
	c.server.workers.addr[p.rank] = ""
	return true
}

// close makes the server refuse all workers that connect from now on. It
// returns the peers that are connected.
func (c *connections) close() (all []*peer) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.closing = true
	return slices.DeleteFunc(slices.Clone(c.peers), func(p *peer) bool { return p == nil })
}

// farewell closes the connections of all peers. If training failed, it first
// sends the reason to every peer, and waits at most message.Farewell for the
// peer to close.
func (c *connections) farewell() {
	var telling sync.WaitGroup
	for _, p := range c.close() {
		telling.Go(func() {
			if err := c.server.Err(); err != nil {
				p.session.CloseWithError(err, message.Farewell)
			}
			p.session.Close()
			<-p.over
		})
	}
	telling.Wait()
	c.server.running.Wait()
}

// linger keeps the listener open for up to message.Farewell after a training
// that failed before its first step. Workers that connect in this time are
// refused with the reason. A closed listener would look to them like a dead
// shard holder.
func (c *connections) linger(ctx context.Context) {
	c.server.mu.Lock()
	opened, absent := c.server.opened, c.server.workers.absent()
	c.server.mu.Unlock()
	timer := time.NewTimer(message.Farewell)
	defer timer.Stop()
	for ; absent > 0 && c.server.Err() != nil && !opened; absent-- {
		select {
		case <-c.refusals:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// write starts one writer (the goroutine that sends frames) for every
// connected worker, and subscribes the writer to the events of the shards. The
// callers of write, succeed and moved hold the mutex mu of the server, so that
// no worker begins a step meanwhile.
func (c *connections) write(e *aggregate.Shards, m *members) {
	for rank, p := range c.peers {
		if p == nil {
			continue
		}
		var events <-chan aggregate.Event
		if e.Contributor(rank) != nil {
			events = p.subscribe(m, e.Events()+4+len(c.peers)) // room for the events of one step, and for events that do not occur in every step
			for _, shard := range e.All() {
				shard.Snapshot(e.ReaderGroup(rank)) // keep a copy of the values for this worker, because faster workers may begin the next step before this worker has received them
			}
		}
		c.server.running.Go(newWriter(e, p, events).run)
	}
}

// succeed replaces the previous shards by the ones in next, from the given
// step on: all workers then receive the events of next. The last event that
// each worker receives from the previous shards is succeeds.
func (c *connections) succeed(next *aggregate.Shards, m, before *members, step uint64) {
	for rank, p := range c.peers {
		if p != nil && next.Contributor(rank) != nil {
			before.Tell(rank, succeeds{next, p.subscribe(m, next.Events()+4), step}) // cannot block: between two steps the channel is empty
		}
	}
}

// moved tells all workers that variables have moved to other shard holders.
// The new placement (which shard holder has which pieces) has the version
// number epoch, and is valid from the given step on.
func (c *connections) moved(epoch uint32, step uint64) {
	for _, p := range c.peers {
		if p == nil {
			continue
		}
		p.session.SetEpoch(epoch)
		c.server.running.Go(func() {
			err := p.session.Send(wire.Frame{Header: wire.Header{Kind: wire.Moved, Step: step}})
			if err = p.unlessEnded(err); err != nil {
				c.server.End(p.session.Blame(err))
			}
		})
	}
}

// announce tells all other workers that a worker is lost. The parameter lost
// is its rank, and counts is the first step without the worker.
func (c *connections) announce(lost int, counts uint64) {
	frame := wire.Frame{Header: wire.Header{Kind: wire.Without, Part: uint32(lost), Step: counts}}
	for rank := range c.peers {
		if rank != lost {
			c.server.members.Tell(rank, message.Sends(frame))
		}
	}
}

// members implements aggregate.Host for the shards of a server: it delivers
// the events of the shards to the workers that take part in the training.
type members struct {
	values func(layout.Piece) []byte // returns the memory for the values of a piece of a dense variable; nil means that the shards allocate it
	tell   []func(aggregate.Event)   // functions, indexed by rank, that deliver an event to the worker without blocking; set before the first step
	fail   func(error)               // ends the training with an error
}

func newMembers(n int, fail func(error), values func(layout.Piece) []byte) *members {
	return &members{values: values, tell: make([]func(aggregate.Event), n), fail: fail}
}

func (m *members) Memory(p layout.Piece) []byte {
	if m.values == nil {
		return nil
	}
	return m.values(p)
}

func (m *members) Tell(rank int, e aggregate.Event) { m.tell[rank](e) }

func (m *members) Fail(err error) { m.fail(err) }

var (
	errNoFrame  = errors.New("hung up before it sent a frame")
	errNoPieces = errors.New("the chief assigns no variables to this task")
)

// start reads the worker's declaration. From the chief it also reads the
// initial values of the variables, unless they come from a checkpoint; filled
// is true if start has read initial values. The error is errNoFrame if the
// connection ended before the worker sent a frame.
func (p *peer) start() (filled bool, err error) {
	h, err := p.next()
	if lost := peers.Lost(err); err != nil && lost.Error() != err.Error() {
		return false, fmt.Errorf("%w: %w", errNoFrame, lost)
	}
	if err != nil {
		return false, err
	}
	d, err := p.declaration(h)
	if err != nil {
		return false, err
	}
	if err := p.server.declare(p.rank, d); err != nil {
		return false, err
	}
	p.session.SetPeerTimeout(d.Silence())
	p.step = contribution{rank: p.rank, begun: d.FirstStep(p.rank), ahead: d.StartsAhead(p.rank)}
	if p.chief != nil && d.Checkpoint == "" {
		return true, p.fill(p.server.Shards())
	}
	return false, nil
}

// declaration reads the payload of the frame with header h. The frame must be
// a worker's declaration.
func (p *peer) declaration(h wire.Header) (*layout.Declaration, error) {
	if h.Kind != wire.Declare || h.Length > message.MaxDeclaration {
		return nil, fmt.Errorf("%s frame of %d bytes where a declaration was due", h.Kind, h.Length)
	}
	var d layout.Declaration
	return &d, p.readJSON(h, &d)
}

// difference returns the error with which the server refuses a worker. why is
// the general reason. If the worker sends its declaration (what it trains, and
// how) in time, and the declaration differs from the other workers', the error
// names the difference instead.
func (p *peer) difference(why error) error {
	p.server.mu.Lock()
	holds, of := p.server.workers.expected(p.server.local.Aggregator != nil)
	p.server.mu.Unlock()
	if holds == nil {
		return why
	}
	defer time.AfterFunc(message.Farewell, func() { p.session.Close() }).Stop()
	h, err := p.next()
	if err != nil {
		return why
	}
	d, err := p.declaration(h)
	if err != nil || holds.Difference(d) == "" {
		return why
	}
	return p.session.Blame(fmt.Errorf("declares a different training than %s: %s", of, holds.Difference(d)))
}

// dismissed ends a server to which the chief assigns no pieces of variables.
// If another worker has connected to this task, that worker considers the task
// a shard holder, so its declaration differs from the chief's. The server
// waits up to message.Farewell for such a declaration, so that declare can
// report the difference.
func (p *peer) dismissed() error {
	if err := p.session.Bye(); err != nil {
		return err
	}
	p.session.Drain()
	var wait time.Duration
	if slices.ContainsFunc(p.server.Workers(), func(w WorkerState) bool { return w.Addr != "" && !w.Declared }) {
		wait = message.Farewell
	}
	time.AfterFunc(wait, func() { p.server.End(nil) })
	return nil
}

// fill reads the initial values that the chief sends, in any order: one frame
// for each piece whose values the chief sends.
func (p *peer) fill(e *aggregate.Shards) error {
	left := 0
	for _, s := range e.All() {
		if _, filled := s.Filled(); filled {
			left++
		}
	}
	for got := map[int]bool{}; len(got) < left; {
		h, err := p.next()
		if err != nil {
			return err
		}
		i, err := find(e, h, wire.Initial)
		if err != nil {
			return err
		}
		shard := e.All()[i]
		size, filled := shard.Filled()
		if got[i] || !filled || h.Length != uint64(size) {
			return fmt.Errorf("first values of variable %d of %d bytes, want %d, once", h.Variable, h.Length, size)
		}
		got[i] = true
		if err := p.fillOne(shard, size); err != nil {
			return err
		}
	}
	return nil
}

// fillOne reads the initial values of one shard into its memory. size is their
// length in bytes.
func (p *peer) fillOne(s *aggregate.Shard, size int) error {
	if s.RowBytes() == 0 {
		return p.session.Payload(s.Value(-1))
	}
	values := make([]byte, size) // temporary buffer for all rows of the shard, which Fill copies into the shard
	if err := p.session.Payload(values); err != nil {
		return err
	}
	return s.Fill(values)
}
