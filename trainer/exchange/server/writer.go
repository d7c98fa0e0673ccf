package server

import (
	"context"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// succeeds is the event that variables have moved to other tasks that store
// them. After it, the worker receives events from the shards in next.
type succeeds struct {
	next   *aggregate.Shards
	events <-chan aggregate.Event // delivers the worker's events from the shards in next
	step   uint64                 // first step whose events come from the shards in next
}

func (succeeds) Counted() bool { return false }

// writer sends frames to one worker: new values, outcomes of steps, and frames
// for other events.
type writer struct {
	peer   *peer
	shards *aggregate.Shards
	events <-chan aggregate.Event // events for this worker, such as that a shard has a new value; nil if the worker sends no gradients to this server
	step   uint64                 // number of steps that are complete at the end of the current step
	frames []wire.Frame           // frames that the next Send sends together; reused
	done   [message.OutcomeSize]byte
	report []byte
	reply  message.Reply
}

func newWriter(e *aggregate.Shards, p *peer, events <-chan aggregate.Event) *writer {
	return &writer{peer: p, shards: e, events: events, step: e.Declaration().FirstStep(p.rank),
		frames: make([]wire.Frame, 0, len(e.All())+1)}
}

// run sends the worker the first values, and later the value of each piece as
// soon as a step has updated it. It returns when the training ends or the
// worker is lost.
func (w *writer) run() {
	p := w.peer
	err := w.first()
	if w.events == nil && err == nil {
		return
	}
	for err == nil {
		w.step++
		p.turn <- struct{}{}
		err = w.writeStep()
	}
	switch err = p.unlessEnded(err); {
	case err == nil || p.server.parted(p.rank):
	case p.tolerable(err):
		p.cancel(err) // Stop only this worker's goroutines. The goroutine that reads the connection reports the loss later, after the worker's last frame.
	default:
		p.server.End(p.session.Blame(err))
	}
}

// first sends the first values and a Ready frame. The server of an aggregator
// (the first worker of a host) sends only the Ready frame, because the workers
// receive their first values from the shard holders.
func (w *writer) first() error {
	for i := range w.shards.All() {
		if w.peer.server.local.Aggregator == nil {
			w.value(i)
		}
	}
	return w.peer.session.Send(append(w.frames, wire.Frame{Header: wire.Header{Kind: wire.Ready, Step: w.step}})...)
}

// writeStep sends the values and the outcome of one step. If this server's
// shards send no events for a step, writeStep waits until variables move
// between servers or the training ends.
func (w *writer) writeStep() error {
	var end aggregate.Outcome
	for left := max(1, w.shards.Events()); left > 0; {
		w.frames = w.frames[:0]
		event, ok := w.next(true)
		for ; ok; event, ok = w.next(false) {
			if event.Counted() {
				left--
			}
			switch event := event.(type) {
			case aggregate.Updated:
				w.value(event.Shard)
				if !w.shards.Closes() {
					end = event.End
				}
			case aggregate.Closed:
				end = event.End
			case succeeds:
				w.shards, w.events, w.step = event.next, event.events, event.step+1
				left = max(1, w.shards.Events())
			default:
				w.other(event)
			}
		}
		if w.peer.ctx.Err() != nil {
			return context.Cause(w.peer.ctx)
		}
		if left == 0 {
			done := wire.Header{Kind: wire.Done, Step: w.step}
			w.frames = append(w.frames, wire.Frame{Header: done, Payload: message.EncodeOutcome(w.done[:], end)})
			if due := w.peer.rows.end(); due != nil {
				w.frames = append(w.frames, final(&w.reply, w.step, due))
			}
		}
		if len(w.frames) == 0 {
			continue // the only event was succeeds (variables have moved), for which no frame is sent
		}
		if err := w.peer.session.Send(w.frames...); err != nil {
			return err
		}
	}
	return nil
}

// other appends the frame for an event that does not occur in every step.
func (w *writer) other(event aggregate.Event) {
	switch event := event.(type) {
	case aggregate.SquaresWanted:
		w.report = aggregate.Report(w.shards.All(), w.shards.Contributor(w.peer.rank).Group, w.report)
		w.frames = append(w.frames, wire.Frame{Header: wire.Header{Kind: wire.Norm, Step: w.step}, Payload: w.report})
	case aggregate.Ended:
		w.frames = append(w.frames, wire.Frame{Header: wire.Header{Kind: wire.Verdict, Part: uint32(policy.Over)}})
	case message.Sends:
		w.frames = append(w.frames, wire.Frame(event))
	}
}

// next returns the next event of the shards (parts of variables). If wait is
// true, next blocks until there is an event, the training ends or the worker
// is lost.
func (w *writer) next(wait bool) (aggregate.Event, bool) {
	if !wait {
		select {
		case e := <-w.events:
			return e, true
		default:
			return nil, false
		}
	}
	select {
	case e := <-w.events:
		return e, true
	case <-w.peer.ctx.Done():
		return nil, false
	}
}

// value appends a frame with the value of a shard (part of a variable) after
// w.step steps. The frame refers to the shard's memory and does not copy it.
func (w *writer) value(shard int) {
	at := w.shards.All()[shard]
	payload := at.Value(w.shards.ReaderGroup(w.peer.rank))
	if l := w.peer.server.local; l.Aggregator != nil { // on the first worker of a host, which has an aggregator, the new value is in that worker's own memory
		payload = l.Values(at.Piece)
	}
	if payload == nil {
		return // a sparse shard has no value to send, because workers request its rows
	}
	w.frames = append(w.frames, wire.Frame{
		Header:  wire.Header{Kind: wire.Value, Variable: uint32(at.Variable), Offset: uint64(at.Offset), Step: w.step},
		Payload: payload,
	})
}
