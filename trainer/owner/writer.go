package owner

import (
	"github.com/plx-run/plx/trainer/wire"
)

// writer is what a peer's write needs from step to step.
type writer struct {
	engine *engine
	events <-chan event
	step   uint64 // steps made once the one under way is
	frames []wire.Frame
	done   [doneSize]byte
	report []byte
	rows   answer
}

// write sends the first values, and from then on each piece as soon as it is
// updated, until the training ends.
func (p *peer) write() {
	e := p.server.engine
	rank := p.task.Index
	first := e.d.first(rank)
	w := &writer{engine: e, events: p.events, step: first + 1, frames: make([]wire.Frame, 0, len(e.slots)+1)}
	for i := range e.slots {
		if e.relay == nil { // else they come from the owners
			w.value(e, i, e.audience(rank), first)
		}
	}
	w.frames = append(w.frames, wire.Frame{Header: wire.Header{Kind: wire.Ready, Step: first}})
	err := p.conn.Send(w.frames...)
	if p.events == nil && err == nil {
		return
	}
	for ; err == nil; w.step++ {
		p.turn <- struct{}{}
		err = p.writeStep(w)
	}
	switch err = p.quiet(err); {
	case err == nil || p.server.parted(p.task.Index):
	case p.server.spares(p):
		p.fall(err) // its reader says it, who hears whatever it has still said
	default:
		p.server.lost(p, err)
	}
}

// due is how many events end a step. Where there is nothing to be updated, one
// is waited for that says what there is.
func (w *writer) due() int { return max(1, w.engine.events()) }

// writeStep sends all that comes out of one step.
func (p *peer) writeStep(w *writer) error {
	rank := p.task.Index
	var end outcome
	for left := w.due(); left > 0; {
		w.frames = w.frames[:0]
		event, ok := p.event(w, true)
		for ; ok; event, ok = p.event(w, false) {
			e := w.engine
			switch {
			case event.next != nil:
				w.succeed(event.next, rank)
				left = w.due()
				continue
			case event.ask:
				w.report = e.report(w.report, e.roster.contributor(rank).group)
				w.frames = append(w.frames, wire.Frame{Header: wire.Header{Kind: wire.Norm, Step: w.step}, Payload: w.report})
				continue
			case event.say != nil:
				w.frames = append(w.frames, *event.say)
				continue
			case event.over:
				w.frames = append(w.frames, wire.Frame{Header: wire.Header{Kind: wire.Verdict, Part: uint32(over)}})
				continue
			case event.slot >= 0:
				w.value(e, event.slot, e.audience(rank), w.step)
			}
			left--
			if event.slot < 0 || !e.lastEvent() {
				end = event.end
			}
		}
		select {
		case <-p.server.ended:
			return errEnded
		case <-p.out:
			return p.cause
		default:
		}
		if left == 0 {
			frame := wire.Frame{Header: wire.Header{Kind: wire.Done, Step: w.step}, Payload: encodeOutcome(w.done[:], end)}
			w.frames = append(w.frames, frame)
			w.frames = p.behindDone(w)
		}
		if len(w.frames) == 0 {
			continue // variables have moved
		}
		if err := p.conn.Send(w.frames...); err != nil {
			return err
		}
	}
	return nil
}

// event takes the next event. With wait it may take as long as the training.
func (p *peer) event(w *writer, wait bool) (event, bool) {
	if !wait {
		select {
		case e := <-w.events:
			return e, true
		default:
			return event{}, false
		}
	}
	select {
	case e := <-w.events:
		return e, true
	case <-p.server.ended:
		return event{}, false
	case <-p.out:
		return event{}, false
	}
}

// value adds the frame of a piece after so many steps. It does not copy.
func (w *writer) value(e *engine, slot, audience int, step uint64) {
	s := e.slots[slot]
	payload := s.value(audience)
	if payload == nil {
		return // rows are pulled
	}
	at := s.piece()
	w.frames = append(w.frames, wire.Frame{
		Header:  wire.Header{Kind: wire.Value, Variable: uint32(at.Variable), Offset: uint64(at.Offset), Step: step},
		Payload: payload,
	})
}
