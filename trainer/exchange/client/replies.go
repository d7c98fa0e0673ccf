package client

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/wire"
)

// replies are what a holder replies between two steps.
type replies struct {
	*holder
	moved chan struct{}             // variables have moved
	cuts  chan []uint64             // what is in a cut
	alone chan struct{}             // closed: all others have left
	rooms chan transition.RoomError // what memory the holder has
	asked atomic.Bool               // it was asked for room
}

func newReplies(of *holder) *replies {
	return &replies{holder: of, moved: make(chan struct{}, 1), cuts: make(chan []uint64, 1), alone: make(chan struct{}), rooms: make(chan transition.RoomError, 1)}
}

// take takes a reply to a question about room or a cut, or the report that all
// others have left.
func (r *replies) take(f wire.Header) error {
	cuts := r.index >= 0 && r.d.Sync.Cuts()
	switch {
	case f.Kind == wire.Room:
		var b [message.PairSize]byte
		if f.Length != uint64(len(b)) || !r.asked.Swap(false) {
			return fmt.Errorf("%s frame of %d bytes, which nobody asked for", f.Kind, f.Length)
		}
		if err := r.session.Payload(b[:]); err != nil {
			return err
		}
		need, free := message.DecodeRoom(b[:])
		r.rooms <- transition.RoomError{Holder: r.session.Task, Need: need, Free: free}
		return nil
	case f.Kind == wire.Cut && cuts:
		has, err := message.ReadCut(f, len(r.d.Groups()), r.session)
		if err != nil {
			return err
		}
		select {
		case r.cuts <- has:
			return nil
		default:
			return errors.New("said twice what is in a cut")
		}
	case f.Kind == wire.Alone && cuts && f.Length == 0:
		select {
		case <-r.alone:
			return errors.New("said twice that all others have left")
		default:
			close(r.alone)
			return nil
		}
	}
	return fmt.Errorf("unexpected %s frame", f.Kind)
}
