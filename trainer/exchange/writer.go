package exchange

import (
	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// writer is what a peer's write needs from step to step.
type writer struct {
	shards *aggregate.Shards
	events <-chan aggregate.Event
	step   uint64 // steps made once the one under way is
	frames []wire.Frame
	done   [doneSize]byte
	report []byte
	rows   answer
}

// write sends the first values, and from then on each piece as soon as it is
// updated, until the training ends.
func (p *peer) write() {
	e := p.server.shards
	rank := p.task.Index
	first := e.Declaration().FirstStep(rank)
	w := &writer{shards: e, events: p.events, step: first + 1, frames: make([]wire.Frame, 0, len(e.All())+1)}
	for i := range e.All() {
		if p.server.relay == nil { // else they come from the holders
			w.value(p.server, i, e.Audience(rank), first)
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
	case p.server.spares(p, err):
		p.fall(err) // its reader says it, who hears whatever it has still said
	default:
		p.server.lost(p, err)
	}
}

// due is how many events end a step. Where there is nothing to be updated, one
// is waited for that says what there is.
func (w *writer) due() int { return max(1, w.shards.Events()) }

// writeStep sends all that comes out of one step.
func (p *peer) writeStep(w *writer) error {
	rank := p.task.Index
	var end aggregate.Outcome
	for left := w.due(); left > 0; {
		w.frames = w.frames[:0]
		event, ok := p.event(w, true)
		for ; ok; event, ok = p.event(w, false) {
			if event.Counted() {
				left--
			}
			switch event := event.(type) {
			case aggregate.Updated:
				w.value(p.server, event.Shard, w.shards.Audience(rank), w.step)
				if !w.shards.Closes() {
					end = event.End
				}
			case aggregate.Closed:
				end = event.End
			case aggregate.SquaresWanted:
				w.report = aggregate.Report(w.shards.All(), w.shards.Contributor(rank).Group, w.report)
				w.frames = append(w.frames, wire.Frame{Header: wire.Header{Kind: wire.Norm, Step: w.step}, Payload: w.report})
			case aggregate.Ended:
				w.frames = append(w.frames, wire.Frame{Header: wire.Header{Kind: wire.Verdict, Part: uint32(policy.Over)}})
			case sends:
				w.frames = append(w.frames, wire.Frame(event))
			case succeeds:
				w.shards, w.events, w.step = event.next, event.events, event.step+1
				left = w.due()
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
func (p *peer) event(w *writer, wait bool) (aggregate.Event, bool) {
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
	case <-p.server.ended:
		return nil, false
	case <-p.out:
		return nil, false
	}
}

// value adds the frame of a piece after so many steps. It does not copy.
func (w *writer) value(of *server, shard, audience int, step uint64) {
	at := w.shards.All()[shard]
	payload := at.Value(audience)
	if of.relay != nil { // what the holders sent to this worker's memory
		payload = of.relay.client.pieceMemory(at.Piece)
	}
	if payload == nil {
		return // rows are pulled
	}
	w.frames = append(w.frames, wire.Frame{
		Header:  wire.Header{Kind: wire.Value, Variable: uint32(at.Variable), Offset: uint64(at.Offset), Step: step},
		Payload: payload,
	})
}
