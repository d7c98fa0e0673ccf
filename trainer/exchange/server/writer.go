package server

import (
	"context"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// succeeds is the event that variables have moved. From now on the shards next
// send the events of the worker.
type succeeds struct {
	next   *aggregate.Shards
	events <-chan aggregate.Event // their events for the worker
	step   uint64                 // their first step
}

func (succeeds) Counted() bool { return false }

// writer sends frames to one worker: values, outcomes, and frames for other
// events of the shards and the server.
type writer struct {
	peer   *peer
	shards *aggregate.Shards
	events <-chan aggregate.Event // nil: the worker contributes nothing
	step   uint64                 // number of steps complete when the current step ends
	frames []wire.Frame           // to send together
	done   [message.OutcomeSize]byte
	report []byte
	reply  message.Reply
}

func newWriter(e *aggregate.Shards, p *peer, events <-chan aggregate.Event) *writer {
	return &writer{peer: p, shards: e, events: events, step: e.Declaration().FirstStep(p.rank),
		frames: make([]wire.Frame, 0, len(e.All())+1)}
}

// run sends the first values, and then each piece as soon as it is updated. It
// returns when the training ends or the worker is lost.
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
	switch err = p.quiet(err); {
	case err == nil || p.server.parted(p.rank):
	case p.tolerable(err):
		p.fall(err) // the reader reports the loss, after the worker's last frames
	default:
		p.server.End(p.session.Blame(err))
	}
}

// first sends the first values. The server of an Aggregator sends none, because every
// worker gets them from the holders.
func (w *writer) first() error {
	for i := range w.shards.All() {
		if w.peer.server.local.Aggregator == nil {
			w.value(i)
		}
	}
	return w.peer.session.Send(append(w.frames, wire.Frame{Header: wire.Header{Kind: wire.Ready, Step: w.step}})...)
}

// writeStep sends everything that results from one step. If shards send no
// events in a step, it waits for succeeds or the end of the training.
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
			continue // variables have moved
		}
		if err := w.peer.session.Send(w.frames...); err != nil {
			return err
		}
	}
	return nil
}

// other appends the frame of an event that does not occur in every step.
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

// next takes the next event. If wait is set, it waits for an event until the
// training ends or the worker is lost.
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

// value appends the frame of a piece after w.step steps. It does not copy the
// value.
func (w *writer) value(shard int) {
	at := w.shards.All()[shard]
	payload := at.Value(w.shards.Audience(w.peer.rank))
	if l := w.peer.server.local; l.Aggregator != nil { // the holders sent the value to this worker's memory
		payload = l.Values(at.Piece)
	}
	if payload == nil {
		return // sparse: workers request rows
	}
	w.frames = append(w.frames, wire.Frame{
		Header:  wire.Header{Kind: wire.Value, Variable: uint32(at.Variable), Offset: uint64(at.Offset), Step: w.step},
		Payload: payload,
	})
}
