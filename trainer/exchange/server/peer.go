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

// peer is a worker that is connected to this shard holder. One goroutine, the
// reader, calls serve. Another goroutine, the writer, sends frames to the
// worker.
//
// The channel turn holds a token while the worker may begin a step. The writer
// puts the token into the channel after it has sent all values of the previous
// step. So a new step never changes values that are still being sent.
type peer struct {
	server  *Server
	session *peers.Session
	rank    int
	read    func([]byte) error      // the method value session.Payload, which is created only once to avoid an allocation per frame
	turn    chan struct{}           // contains a token while the worker may begin a step
	over    chan struct{}           // closed after the goroutine that reads the connection has ended
	ctx     context.Context         // canceled when the training ends or the worker is lost; its cause is the reason
	cancel  context.CancelCauseFunc // cancels ctx with the reason when the worker is lost, so that no goroutine continues to wait for the worker

	// Only the goroutine that reads the connection uses the following fields,
	// with two exceptions: the writing goroutine calls rows.end, and settle
	// uses step after the worker is lost.
	epoch uint32       // placement version that the worker's next frames must have
	step  contribution // which gradients of the current step have arrived
	rows  replies      // rows that the worker has requested and not received yet
	chief *chief       // handles requests that only the chief may make; nil if this worker is not the chief

	// The mutex mu of the server guards the fields below.
	lost   bool    // true if the worker was lost and training continues without it
	counts *uint64 // first step that does not count the lost worker; nil until the first shard holder has announced this step
}

func newPeer(from peers.Peer, s *Server) *peer {
	p := &peer{
		server: s, session: peers.NewSession(from, s.config.Peers.Generation, firstSilence), rank: from.Task.Index,
		turn: make(chan struct{}, 1), over: make(chan struct{}),
	}
	p.read = p.session.Payload
	p.ctx, p.cancel = context.WithCancelCause(s.ctx)
	if from.Task.IsChief() {
		p.chief = &chief{peer: p, copied: make(chan struct{})}
		close(p.chief.copied) // closed means: no checkpoint is being copied at the moment
	}
	return p
}

// subscribe makes m deliver the worker's events (what this shard holder sends
// to the worker in a step) to the returned channel. The parameter room is the
// channel's capacity. It must suffice for all events that can be pending, so
// that delivery never blocks. After the worker is lost, its events may be
// dropped.
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

// next returns the header of the worker's next frame, which may be a goodbye.
// If the worker reports that another task failed, the error names that task,
// so that all other workers learn the original cause.
func (p *peer) next() (wire.Header, error) {
	h, err := p.session.Next()
	if err == nil || err == peers.ErrGoodbye {
		return h, nil
	}
	var known *peers.PeerError // declared after the returns for the usual cases, because this variable escapes to the heap
	switch {
	case !errors.As(err, &known):
		return h, err
	case known.Task != p.session.Task:
		return h, known
	}
	return h, fmt.Errorf("gave up: %w", known.Err)
}

// serve handles the worker's frames. It returns nil after the worker has said
// goodbye and closed the connection.
func (p *peer) serve() error {
	filled, err := p.start()
	if err == errNoPieces {
		return p.dismissed()
	}
	if err != nil {
		return err
	}
	p.server.open(filled)
	for {
		h, err := p.next()
		if err == nil && h.Kind == wire.Bye && h.Length == 0 {
			return p.unlessEnded(p.goodbye(h))
		}
		if err == nil {
			err = p.take(h)
		}
		if err != nil {
			return p.unlessEnded(err)
		}
	}
}

// unlessEnded returns err while the training continues. After the training has
// ended, it returns nil, because then err is only a consequence of that end.
func (p *peer) unlessEnded(err error) error {
	if p.server.ctx.Err() != nil {
		return nil
	}
	return err
}

// take handles one frame of the worker, except goodbye.
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
	case e.Contributor(p.rank) == nil: // this worker sends no gradients to this server, so frames of the kinds below are errors
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

// awaitTurn takes the token from turn: it waits until the worker may begin a
// step.
func (p *peer) awaitTurn() error {
	select {
	case <-p.turn:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

// begin handles a Step frame, with which the worker begins a step.
func (p *peer) begin(h wire.Header, e *aggregate.Shards) error {
	if err := p.step.read(h, e, p.session); err != nil {
		return err
	}
	if err := p.awaitTurn(); err != nil {
		return err
	}
	p.chief.releaseWorkers()
	p.rows.begin()
	b := p.step.decode()
	if err := p.server.begin(p.rank, h.Step, b); err != nil {
		return err
	}
	p.step.begin(h.Step, b, e)
	return nil
}

// want handles a prefetch request: the worker asks for the rows that it will
// need in its next step.
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

// scale handles a Scale frame, with which the first worker of a group reports
// the norm of the group's gradients.
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

// commit replies to a worker, in mode backup, whether the step uses the
// worker's gradients or they came too late.
func (p *peer) commit(h wire.Header, e *aggregate.Shards) error {
	selection := e.Selection()
	if selection == nil {
		return errors.New("asks whether its gradients are used, which another task decides")
	}
	v, current, err := selection.Commit(p.rank, h.Step)
	if err != nil {
		return err
	}
	return p.session.Send(wire.Frame{Header: wire.Header{Kind: wire.Verdict, Part: uint32(v), Step: current}})
}

// fetch handles a worker's request for the values of the variables after
// h.Step steps. The shards reply once that many steps are complete.
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

// room handles the question whether this host has enough memory for a proposed
// placement. The reply contains the memory that the placement needs and the
// memory that is free, in bytes.
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
		return fmt.Errorf("asks whether memory suffices: %w", err)
	}
	r := p.server.holder.Room(e.Declaration(), d)
	return p.session.Send(wire.Frame{Header: wire.Header{Kind: wire.Room}, Payload: message.EncodeRoom(r.Need, r.Free)})
}

// remap handles a worker's request that variables move to other shard holders
// before the next step.
func (p *peer) remap(h wire.Header, e *aggregate.Shards) error {
	var w transition.MoveRequest
	if err := p.readJSON(h, &w); err != nil {
		return err
	}
	follows := e.Contributor(p.rank) == nil || len(e.All()) == 0 // true if this server receives no steps of the worker, so that p.step.begun may be less than the worker's number of steps
	if begun := p.step.begun; p.step.need > 0 || w.Step < begun || w.Step > begun && !follows {
		return fmt.Errorf("wants variables to move before step %d, during step %d with %d gradients to come", w.Step, begun, p.step.need)
	}
	p.epoch = w.Epoch
	p.step.begun, p.step.got = w.Step, nil
	return p.server.migration.remap(p.rank, &w)
}

// readJSON decodes a JSON payload of at most message.MaxDeclaration bytes.
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

// goodbye handles a worker's goodbye frame, which is an error during a step.
func (p *peer) goodbye(h wire.Header) error {
	e, err := p.server.admit(p.rank, h, p.epoch)
	switch {
	case err != nil:
		return err
	case p.step.unfinished(e):
		return fmt.Errorf("goodbye during step %d", h.Step)
	}
	p.chief.releaseWorkers()
	if err := p.server.stop(p.rank, true); err != nil {
		return err
	}
	p.server.leaves(p.rank)
	err = p.session.Bye()
	p.session.Drain()
	p.server.left()
	return err
}
