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

// holder is what a worker stores about one task that it sends gradients to: a
// shard holder, or the first worker of its host.
type holder struct {
	session *peers.Session
	index   int // index in Declaration.Holders; -1 if this is the host's first worker, which adds the gradients of its host
	d       *layout.Declaration
	out     *aggregate.Outbox // sums of gradients to send to this holder
	trace   *timeline.Recorder
	holds   atomic.Pointer[holding] // pieces that the holder has under the current placement
	volumes []volume                // traffic, indexed by variable; the last element is for the loss
}

// Volume counts the traffic of one variable between this worker and one shard
// holder (a task that stores pieces of variables), since training began.
type Volume struct {
	Variable int    // index in Declaration.Variables; len(Variables) stands for traffic that belongs to no variable
	Holder   int    // index in Declaration.Holders; -1 stands for the host's first worker, which adds the gradients of its host
	Rows     uint64 // number of rows of gradients that this worker has sent
	Pulled   uint64 // number of rows of values that this worker has received
	// Sent and Received are numbers of bytes. They include the encoded lists
	// of rows and the headers of frames. They are 0 if this worker itself is
	// the holder.
	Sent, Received uint64
}

// volume has the counters for one Volume, which several goroutines update.
type volume struct{ rows, pulled, sent, received atomic.Uint64 }

// shardMap is a placement: it records which shard holder has which pieces. It
// is immutable; after variables have moved, the client replaces it.
type shardMap struct {
	epoch uint32
	d     *layout.Declaration // declaration with the current pieces
	holds []bool              // indexed by holder: true if it has pieces
	norm  *aggregate.Norm     // adds the holders' sums of squares to the global norm
}

func newShardMap(epoch uint32, d *layout.Declaration) *shardMap {
	return &shardMap{epoch: epoch, d: d, holds: d.Holding(), norm: aggregate.NewNorm(d)}
}

// holding lists the pieces that one shard holder has under one placement
// (assignment of all pieces to shard holders). It is immutable.
type holding struct {
	epoch  uint32
	step   uint64 // first step under this placement
	pieces []layout.Piece
	where  map[layout.Place]int // index in pieces of each piece
	has    []bool               // indexed by bucket (group of dense variables): true if the holder has a piece of the bucket
	valued int                  // number of pieces of dense variables among pieces; the holder sends their new values in every step
}

// newHolding returns the pieces that declaration d assigns to the shard holder
// with the given index.
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

// bounds returns the range [lo, hi) of rows of the piece at the given place.
// ok is false if the holder has no such piece, or if its variable is not
// sparse.
func (s *holding) bounds(at layout.Place, d *layout.Declaration) (lo, hi int64, ok bool) {
	i, ok := s.where[at]
	if !ok || d.Variable(at.Variable).Sparse == nil {
		return 0, 0, false
	}
	p := s.pieces[i]
	return int64(p.Offset), int64(p.Offset + p.Count), true
}

// replies passes on a shard holder's replies to requests that the worker makes
// between two steps.
type replies struct {
	*holder
	moved chan struct{}             // receives a token after variables have moved
	cuts  chan []uint64             // receives, for each group of workers, the number of steps after which the holder could save a consistent checkpoint
	alone chan struct{}             // closed after all other workers have left
	rooms chan transition.RoomError // receives the reply to a Room request: the memory in bytes that a move of variables needs on the holder's host, and the free memory
	asked atomic.Bool               // true while a Room request waits for its reply
}

func newReplies(of *holder) *replies {
	return &replies{holder: of, moved: make(chan struct{}, 1), cuts: make(chan []uint64, 1), alone: make(chan struct{}), rooms: make(chan transition.RoomError, 1)}
}

// take handles three kinds of frames. A Room frame is the reply about free
// memory. A Cut frame proposes after which step of each group of workers a
// checkpoint is taken. An Alone frame reports that all other workers have
// left.
func (r *replies) take(f wire.Header) error {
	cuts := r.index >= 0 && r.d.Sync.UsesCuts()
	switch {
	case f.Kind == wire.Room:
		var b [message.PairSize]byte
		if f.Length != uint64(len(b)) || !r.asked.Swap(false) {
			return fmt.Errorf("%s frame of %d bytes, which this worker did not request", f.Kind, f.Length)
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
			return errors.New("sent two replies to a request for a cut")
		}
	case f.Kind == wire.Alone && cuts && f.Length == 0:
		select {
		case <-r.alone:
			return errors.New("reported twice that all other workers have left")
		default:
			close(r.alone)
			return nil
		}
	}
	return fmt.Errorf("unexpected %s frame", f.Kind)
}
