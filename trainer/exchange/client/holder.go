package client

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/timeline"
	"github.com/plx-run/plx/trainer/wire"
)

// holder is a shard holder at the other end of a connection, or the first
// worker of the host.
type holder struct {
	session *peers.Session
	index   int // in Holders, -1: the first worker of the host
	d       *layout.Declaration
	out     *aggregate.Outbox // where what is sent to it comes from
	trace   *timeline.Recorder
	holds   atomic.Pointer[holding] // what it has
	volumes []volume                // by variable, and that of the loss
}

// Volume is what this worker has exchanged with a holder for a variable since
// the training began.
type Volume struct {
	Variable int // one past the declared ones stands for all that belongs to no variable
	Holder   int // in Holders, -1: the first worker of the host
	Rows     uint64
	Pulled   uint64
	// Sent and Received are bytes, lists of rows and a share of each frame's
	// header included. They are 0 if this worker is the holder.
	Sent, Received uint64
}

// volume is a Volume that is being counted.
type volume struct{ rows, pulled, sent, received atomic.Uint64 }

// shardMap is which holder has what for the time being, as a worker knows it.
// It never changes: if variables move, another takes its place.
type shardMap struct {
	epoch uint32
	d     *layout.Declaration // with the pieces of the time being
	holds []bool              // by holder: it has pieces
	norm  *aggregate.Norm
}

func newShardMap(epoch uint32, d *layout.Declaration) *shardMap {
	return &shardMap{epoch: epoch, d: d, holds: d.Holding(), norm: aggregate.NewNorm(d)}
}

// holding is what one holder has for the time being, as a worker knows it. It
// never changes.
type holding struct {
	epoch  uint32
	step   uint64 // from which on it is valid
	pieces []layout.Piece
	where  map[layout.Place]int // index in pieces
	has    []bool               // by bucket: a piece is of it
	valued int                  // pieces whose values are sent
}

// newHolding returns what the holder of an index has in d.
func newHolding(epoch uint32, step uint64, d *layout.Declaration, index int, out *aggregate.Outbox) *holding {
	s := &holding{epoch: epoch, step: step, pieces: d.PiecesOf(index), where: map[layout.Place]int{}, has: make([]bool, len(out.Buckets))}
	for i, p := range s.pieces {
		if b := out.Bucket(p.Variable); b >= 0 {
			s.has[b] = true
		}
		s.where[layout.Place{Variable: p.Variable, Offset: p.Offset}] = i
		if d.Variable(p.Variable).Sparse == nil {
			s.valued++
		}
	}
	return s
}

// bounds returns the rows of a sparse piece.
func (s *holding) bounds(at layout.Place, d *layout.Declaration) (lo, hi int64, ok bool) {
	i, ok := s.where[at]
	if !ok || d.Variable(at.Variable).Sparse == nil {
		return 0, 0, false
	}
	p := s.pieces[i]
	return int64(p.Offset), int64(p.Offset + p.Count), true
}

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
