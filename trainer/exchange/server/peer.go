package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/relay"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// peer is one worker as a holder sees it. One goroutine, the reader, calls
// serve; another one runs a writer. turn holds a token while the worker may
// begin a step: the writer puts it there once everything of the step before has
// left, so the values that a step is about to change are never still being sent.
type peer struct {
	server  *Server
	session *peers.Session
	rank    int
	read    func([]byte) error      // session.Payload, as one value for all frames
	turn    chan struct{}           // see above
	over    chan struct{}           // closed when nothing reads any more
	ctx     context.Context         // ends with the training, or when the worker is lost; the cause says why
	fall    context.CancelCauseFunc // gives the worker up: nothing waits for it any more

	// The reader's; after the loss of the worker, settle's.
	epoch uint32       // of the map of who holds what
	step  contribution // to the step under way
	rows  replies      // rows requested and owed
	chief *chief       // what only the chief may ask for; nil: another worker

	// Guarded by the server's mu.
	lost   bool    // the others go on without it, and nothing is read from it any more
	counts *uint64 // the step from which on it counts in none; nil: the first holder has not said it
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
		close(p.chief.copied) // there is nothing to copy
	}
	return p
}

// subscribe makes members tell of events for the worker, and returns them. To
// tell never blocks: there is room for all that a worker which takes part can be
// told, and none is needed for a lost one.
func (p *peer) subscribe(m *members, room int) <-chan aggregate.Event {
	events := make(chan aggregate.Event, room)
	m.hears(p.rank, func(e aggregate.Event) {
		select {
		case events <- e:
		case <-p.ctx.Done():
		}
	})
	return events
}

// next returns the header of the next frame, also that of a goodbye. The error
// blames the task that the worker blames, so that the others hear of the cause.
func (p *peer) next() (wire.Header, error) {
	h, err := p.session.Next()
	if err == nil || err == peers.ErrGoodbye {
		return h, nil
	}
	var known *peers.PeerError // on the heap, so not in every call
	switch {
	case !errors.As(err, &known):
		return h, err
	case known.Task != p.session.Task:
		return h, known
	}
	return h, fmt.Errorf("gave up: %w", known.Err)
}

// serve reads what the worker sends until it said goodbye and hung up (nil).
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

// quiet drops an error that is only the echo of a training that has ended.
func (p *peer) quiet(err error) error {
	if p.server.ctx.Err() != nil {
		return nil
	}
	return err
}

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
	case e.Contributor(p.rank) == nil: // it is not told of steps
	case h.Kind == wire.Step:
		return p.begin(h, e)
	case h.Kind == wire.Push:
		return p.step.push(h, e, p.read)
	case h.Kind == wire.Want:
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

// awaitTurn returns when the worker may begin a step.
func (p *peer) awaitTurn() error {
	select {
	case <-p.turn:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

// begin takes the first frame of a step.
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

// want takes a prefetch request: rows of the step that follows those begun.
func (p *peer) want(h wire.Header, e *aggregate.Shards) error {
	if !e.Declaration().Sync.InStep() {
		return fmt.Errorf("wants rows of step %d, and workers are not in step", h.Step)
	}
	requested, err := p.rows.read(h, e, p.step.begun, p.session)
	if err != nil {
		return err
	}
	if r := p.server.local.Relay; r != nil {
		r.Rows.Add(h.Step, relay.Request{Rank: p.rank, Rows: requested})
		return nil
	}
	return p.rows.answer(h.Step, e, requested, p.session)
}

// scale takes the norm of a group from the worker that leads it.
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

// commit answers whether the worker's gradients count.
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

// fetch takes a worker's request for the values after so many steps, which is
// answered once there are as many.
func (p *peer) fetch(h wire.Header, e *aggregate.Shards) error {
	if p.step.need > 0 {
		return fmt.Errorf("asks for values during step %d, with %d gradients to come", p.step.begun, p.step.need)
	}
	if err := p.awaitTurn(); err != nil {
		return err
	}
	p.step.catchUp()
	return e.Fetch(p.rank, h.Step)
}

// room answers whether a map that a worker has in mind would fit here.
func (p *peer) room(h wire.Header, e *aggregate.Shards) error {
	var pieces []layout.Piece
	if p.server.local.Relay != nil {
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

// remap takes a worker's request for a map from the next step on.
func (p *peer) remap(h wire.Header, e *aggregate.Shards) error {
	var w transition.Wanted
	if err := p.readJSON(h, &w); err != nil {
		return err
	}
	follows := e.Contributor(p.rank) == nil || len(e.All()) == 0 // it is not told of steps
	if begun := p.step.begun; p.step.need > 0 || w.Step < begun || w.Step > begun && !follows {
		return fmt.Errorf("wants variables to move before step %d, during step %d with %d gradients to come", w.Step, begun, p.step.need)
	}
	p.epoch = w.Epoch
	p.step.continueAt(w.Step)
	return p.server.mover.remap(p.rank, &w)
}

// readJSON reads JSON that is not longer than a declaration.
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

// goodbye ends a worker's part in good order, between two steps.
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
