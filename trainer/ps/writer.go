package ps

import (
	"encoding/binary"
	"math"

	"github.com/plx-run/plx/trainer/wire"
)

// write sends the first values, and from then on each piece as soon as it is
// updated, until the training ends.
func (p *peer) write() {
	store := p.server.store
	frames := make([]wire.Frame, 0, store.events())
	for i := range store.pieces {
		frames = append(frames, store.valueFrame(i, 0))
	}
	frames = append(frames, wire.Frame{Header: wire.Header{Kind: wire.Ready}})
	err := p.conn.Send(frames...)
	for step := uint64(1); err == nil; step++ {
		p.turn <- struct{}{}
		err = p.writeStep(frames, step)
	}
	if err = p.quiet(err); err != nil {
		p.server.end(&PeerError{Task: p.task, Addr: p.addr, Err: lost(err)})
	}
}

// writeStep sends all that comes out of one step. frames is room for it.
func (p *peer) writeStep(frames []wire.Frame, step uint64) error {
	store := p.server.store
	var loss [8]byte
	for left := store.events(); left > 0; {
		frames = frames[:0]
		event, ok := p.event(true)
		for ok {
			if left--; event >= 0 {
				frames = append(frames, store.valueFrame(event, step))
			}
			event, ok = p.event(false)
		}
		select {
		case <-p.server.ended:
			return errEnded
		default:
		}
		if left == 0 {
			binary.LittleEndian.PutUint64(loss[:], math.Float64bits(store.total))
			frames = append(frames, wire.Frame{Header: wire.Header{Kind: wire.Done, Step: step}, Payload: loss[:]})
		}
		if err := p.conn.Send(frames...); err != nil {
			return err
		}
	}
	return nil
}

// event takes the next event. With wait it may take as long as the training.
func (p *peer) event(wait bool) (int, bool) {
	if !wait {
		select {
		case e := <-p.events:
			return e, true
		default:
			return 0, false
		}
	}
	select {
	case e := <-p.events:
		return e, true
	case <-p.server.ended:
		return 0, false
	}
}

// valueFrame holds the piece's value after so many updates. It does not copy.
func (s *Store) valueFrame(i int, updates uint64) wire.Frame {
	at := s.pieces[i].place()
	return wire.Frame{
		Header: wire.Header{
			Kind: wire.Value, Variable: uint32(at.variable), Offset: uint64(at.offset), Step: updates,
		},
		Payload: s.pieces[i].value(),
	}
}
