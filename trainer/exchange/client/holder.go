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

// holder is the state that a worker keeps for a shard holder on another task,
// or for the first worker of its host.
type holder struct {
	session *peers.Session
	index   int // in Declaration.Holders; -1: the first worker of the host
	d       *layout.Declaration
	out     *aggregate.Outbox // sums to send to the holder
	trace   *timeline.Recorder
	holds   atomic.Pointer[holding] // the holder's current pieces
	volumes []volume                // by variable, then the loss
}

// Volume counts the data that this worker and a holder have exchanged for a
// variable since the training began.
type Volume struct {
	Variable int    // index in Declaration.Variables; their number stands for traffic of no variable
	Holder   int    // index in Declaration.Holders; -1: the first worker of the host
	Rows     uint64 // rows of gradients that were sent
	Pulled   uint64 // rows of values that were received
	// Sent and Received are bytes. They include lists of rows and a share of
	// each frame's header. They are 0 if this worker is the holder.
	Sent, Received uint64
}

// volume has the counters of a Volume.
type volume struct{ rows, pulled, sent, received atomic.Uint64 }

// shardMap is the current map of holders: which holder has which pieces. It
// never changes; after variables have moved, the client replaces it.
type shardMap struct {
	epoch uint32
	d     *layout.Declaration // declaration with the current pieces
	holds []bool              // by holder: it has pieces
	norm  *aggregate.Norm     // adds the holders' sums of squares
}

func newShardMap(epoch uint32, d *layout.Declaration) *shardMap {
	return &shardMap{epoch: epoch, d: d, holds: d.Holding(), norm: aggregate.NewNorm(d)}
}

// holding lists the pieces of one holder under one map. It never changes.
type holding struct {
	epoch  uint32
	step   uint64 // first step under the map
	pieces []layout.Piece
	where  map[layout.Place]int // index in pieces
	has    []bool               // by bucket: the holder has a piece of it
	valued int                  // number of dense pieces, whose values the holder sends
}

// newHolding returns the pieces that d gives to the holder with an index.
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

// bounds returns the rows [lo, hi) of a sparse piece.
func (s *holding) bounds(at layout.Place, d *layout.Declaration) (lo, hi int64, ok bool) {
	i, ok := s.where[at]
	if !ok || d.Variable(at.Variable).Sparse == nil {
		return 0, 0, false
	}
	p := s.pieces[i]
	return int64(p.Offset), int64(p.Offset + p.Count), true
}

// replies receives a holder's replies to questions between two steps.
type replies struct {
	*holder
	moved chan struct{}             // gets a token after variables have moved
	cuts  chan []uint64             // number of steps by group that the holder proposes for a cut
	alone chan struct{}             // closed after all other workers have left
	rooms chan transition.RoomError // memory that the holder needs and has
	asked atomic.Bool               // a question about room is not answered yet
}

func newReplies(of *holder) *replies {
	return &replies{holder: of, moved: make(chan struct{}, 1), cuts: make(chan []uint64, 1), alone: make(chan struct{}), rooms: make(chan transition.RoomError, 1)}
}

// take handles a reply about room or a cut, or the report that all other
// workers have left.
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
