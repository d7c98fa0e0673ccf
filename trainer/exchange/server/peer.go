package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/localsum"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// peer is one worker as a shard holder sees it. One goroutine, the reader,
// calls serve; another runs a writer.
//
// turn holds a token while the worker may begin a step. The writer puts the
// token there after it has sent all values of the previous step. So a step
// never changes values that are still being sent.
type peer struct {
	server  *Server
	session *peers.Session
	rank    int
	read    func([]byte) error      // session.Payload as a function value, made once
	turn    chan struct{}           // has a token: the worker may begin a step
	over    chan struct{}           // closed when the reader has ended
	ctx     context.Context         // ends with the training or with the loss of the worker; its cause is the reason
	fall    context.CancelCauseFunc // ends ctx, so that nothing waits for the worker any more

	// The reader uses these. The writer calls rows.end; settle uses step after the
	// loss of the worker.
	epoch uint32       // that the worker's frames must have
	step  contribution // gradients of the current step
	rows  replies      // rows that the worker requested and did not get yet
	chief *chief       // requests that only the chief may make; nil: the worker is not the chief

	// Guarded by the server's mu.
	lost   bool    // training continues without the worker, and its reader has stopped
	counts *uint64 // first step in which the lost worker does not count; nil: not announced by the first holder
}

func newPeer(from peers.Peer, s *Server) *peer {
	p := &peer{
		server: s, session: peers.NewSession(from, s.config.Peers.Generation, firstSilence), rank: from.Task.Index,
		turn: make(chan struct{}, 1), over: make(chan struct{}),
	}
	p.read = p.session.Payload
	p.ctx, p.fall = context.WithCancelCause(s.ctx)
	if from.Task.IsChief() {
		p.chief = &chief{peer: p, copied: make(chan struct{})}
		close(p.chief.copied) // no cut is being copied
	}
	return p
}

// subscribe makes m deliver the worker's events to the returned channel.
// Delivery never blocks: the channel has room for all events that a
// contributing worker can get. Events of a lost worker may be dropped.
func (p *peer) subscribe(m *members, room int) <-chan aggregate.Event {
	events := make(chan aggregate.Event, room)
	m.tell[p.rank] = func(e aggregate.Event) {
		select {
		case events <- e:
		case <-p.ctx.Done():
		}
	}
	return events
}

// next returns the header of the next frame, which may be a goodbye. If the
// worker blames another task, the error blames that task too, so that the other
// workers learn the cause.
func (p *peer) next() (wire.Header, error) {
	h, err := p.session.Next()
	if err == nil || err == peers.ErrGoodbye {
		return h, nil
	}
	var known *peers.PeerError // declared only here, because it escapes to the heap
	switch {
	case !errors.As(err, &known):
		return h, err
	case known.Task != p.session.Task:
		return h, known
	}
	return h, fmt.Errorf("gave up: %w", known.Err)
}

// serve reads the worker's frames until the worker has said goodbye and hung
// up. Then it returns nil.
func (p *peer) serve() error {
	filled, err := p.start()
	if err == errUseless {
		return p.dismissed()
	}
	if err != nil {
		return err
	}
	p.server.open(filled)
	for {
		h, err := p.next()
		if err == nil && h.Kind == wire.Bye && h.Length == 0 {
			return p.quiet(p.goodbye(h))
		}
		if err == nil {
			err = p.take(h)
		}
		if err != nil {
			return p.quiet(err)
		}
	}
}

// quiet drops an error that is only a consequence of the end of the training.
func (p *peer) quiet(err error) error {
	if p.server.ctx.Err() != nil {
		return nil
	}
	return err
}

// take handles one frame of the worker.
func (p *peer) take(h wire.Header) error {
	if h.Kind == wire.Without {
		return p.without(h)
	}
	e, err := p.server.admit(p.rank, h, p.epoch)
	if err != nil {
		return err
	}
	switch {
	case h.Kind == wire.Remap:
		return p.remap(h, e)
	case h.Kind == wire.Room:
		return p.room(h, e)
	case h.Kind == wire.Pull:
		return p.rows.pull(h, e, p.session)
	case e.Contributor(p.rank) == nil: // the worker contributes nothing here
	case h.Kind == wire.Step:
		return p.begin(h, e)
	case h.Kind == wire.Push:
		return p.step.push(h, e, p.read)
	case h.Kind == wire.Prefetch:
		return p.want(h, e)
	case h.Kind == wire.Scale:
		return p.scale(h, e)
	case p.chief != nil && (h.Kind == wire.Save || h.Kind == wire.Cut || h.Kind == wire.Alone):
		return p.chief.take(h, e)
	case h.Kind == wire.Commit && h.Length == 0:
		return p.commit(h, e)
	case h.Kind == wire.Fetch && h.Length == 0:
		return p.fetch(h, e)
	}
	return fmt.Errorf("unexpected %s frame", h.Kind)
}

// awaitTurn waits until the worker may begin a step.
func (p *peer) awaitTurn() error {
	select {
	case <-p.turn:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

// begin handles the first frame of a step.
func (p *peer) begin(h wire.Header, e *aggregate.Shards) error {
	if err := p.step.read(h, e, p.session); err != nil {
		return err
	}
	if err := p.awaitTurn(); err != nil {
		return err
	}
	p.chief.goOn()
	p.rows.begin()
	b := p.step.decode()
	if err := p.server.begin(p.rank, h.Step, b); err != nil {
		return err
	}
	p.step.begin(h.Step, b, e)
	return nil
}

// want handles a prefetch request: rows for the step after those that the
// worker has begun.
func (p *peer) want(h wire.Header, e *aggregate.Shards) error {
	if !e.Declaration().Sync.InStep() {
		return fmt.Errorf("wants rows of step %d, and workers are not in step", h.Step)
	}
	requested, err := p.rows.read(h, e, p.step.begun, p.session)
	if err != nil {
		return err
	}
	if r := p.server.local.Aggregator; r != nil {
		r.Rows.Add(h.Step, localsum.Request{Rank: p.rank, Rows: requested})
		return nil
	}
	return p.rows.answer(h.Step, e, requested, p.session)
}

// scale handles the gradient norm of a group. The first worker of the group
// sends it.
func (p *peer) scale(h wire.Header, e *aggregate.Shards) error {
	var body [message.PairSize]byte
	if h.Length != uint64(len(body)) {
		return fmt.Errorf("scale frame of %d bytes", h.Length)
	}
	if err := p.session.Payload(body[:]); err != nil {
		return err
	}
	norm, factor := message.DecodeScale(body[:])
	return e.Scale(p.rank, norm, factor)
}

// commit tells the worker whether its gradients count.
func (p *peer) commit(h wire.Header, e *aggregate.Shards) error {
	selection := e.Selection()
	if selection == nil {
		return errors.New("asks whether its gradients count, which is not decided here")
	}
	v, current, err := selection.Commit(p.rank, h.Step)
	if err != nil {
		return err
	}
	return p.session.Send(wire.Frame{Header: wire.Header{Kind: wire.Verdict, Part: uint32(v), Step: current}})
}

// fetch handles a request for the values after h.Step steps. The shards answer
// after that many steps are complete.
func (p *peer) fetch(h wire.Header, e *aggregate.Shards) error {
	if p.step.need > 0 {
		return fmt.Errorf("asks for values during step %d, with %d gradients to come", p.step.begun, p.step.need)
	}
	if err := p.awaitTurn(); err != nil {
		return err
	}
	p.step.ahead = false
	return e.Fetch(p.rank, h.Step)
}

// room handles a question about a proposed map. The reply has the memory that
// the map needs here and the free memory.
func (p *peer) room(h wire.Header, e *aggregate.Shards) error {
	var pieces []layout.Piece
	if p.server.local.Aggregator != nil {
		return fmt.Errorf("unexpected %s frame", h.Kind)
	}
	if err := p.readJSON(h, &pieces); err != nil {
		return err
	}
	d, err := e.Declaration().Placed(pieces)
	if err != nil {
		return fmt.Errorf("asks for room: %w", err)
	}
	r := p.server.holder.Room(e.Declaration(), d)
	return p.session.Send(wire.Frame{Header: wire.Header{Kind: wire.Room}, Payload: message.EncodeRoom(r.Need, r.Free)})
}

// remap handles a request for another map from the next step on.
func (p *peer) remap(h wire.Header, e *aggregate.Shards) error {
	var w transition.MoveRequest
	if err := p.readJSON(h, &w); err != nil {
		return err
	}
	follows := e.Contributor(p.rank) == nil || len(e.All()) == 0 // the worker sends no steps here
	if begun := p.step.begun; p.step.need > 0 || w.Step < begun || w.Step > begun && !follows {
		return fmt.Errorf("wants variables to move before step %d, during step %d with %d gradients to come", w.Step, begun, p.step.need)
	}
	p.epoch = w.Epoch
	p.step.begun, p.step.got = w.Step, nil
	return p.server.migration.remap(p.rank, &w)
}

// readJSON reads a JSON payload of at most message.MaxDeclaration bytes.
func (p *peer) readJSON(h wire.Header, into any) error {
	if h.Length > message.MaxDeclaration {
		return fmt.Errorf("%s frame of %d bytes, want at most %d", h.Kind, h.Length, message.MaxDeclaration)
	}
	body := make([]byte, h.Length)
	if err := p.session.Payload(body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s frame: %w", h.Kind, err)
	}
	return nil
}

// goodbye handles a worker's goodbye, which must come between two steps.
func (p *peer) goodbye(h wire.Header) error {
	e, err := p.server.admit(p.rank, h, p.epoch)
	switch {
	case err != nil:
		return err
	case p.step.unfinished(e):
		return fmt.Errorf("goodbye during step %d", h.Step)
	}
	p.chief.goOn()
	if err := p.server.stop(p.rank, true); err != nil {
		return err
	}
	p.server.leaves(p.rank)
	err = p.session.Bye()
	p.session.Drain()
	p.server.left()
	return err
}
