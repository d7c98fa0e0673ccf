package exchange

import (
	"fmt"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// shardMap is who owns what for the time being, as a worker knows it. It never
// changes: where variables move, another takes its place.
type shardMap struct {
	epoch uint32
	d     *layout.Declaration // with the pieces of the time being
	owns  []bool              // by holder: something
	norm  *aggregate.Norm
}

func newShardMap(epoch uint32, d *layout.Declaration) *shardMap {
	return &shardMap{epoch: epoch, d: d, owns: d.Holding(), norm: aggregate.NewNorm(d)}
}

// holding is what one holder has for the time being, as a worker knows it. It
// never changes.
type holding struct {
	epoch  uint32
	step   uint64 // from which on it holds
	pieces []layout.Piece
	where  map[layout.Place]int // index in pieces
	has    []bool               // by bucket: a piece is of it
	valued int                  // pieces whose values are sent
}

func (l *link) newHolding(epoch uint32, step uint64, d *layout.Declaration) *holding {
	s := &holding{epoch: epoch, step: step, pieces: d.PiecesOf(l.index), where: map[layout.Place]int{}, has: make([]bool, len(l.out.Buckets))}
	for i, p := range s.pieces {
		if b := l.out.Bucket(p.Variable); b >= 0 {
			s.has[b] = true
		}
		s.where[layout.Place{Variable: p.Variable, Offset: p.Offset}] = i
		if d.Variable(p.Variable).Sparse == nil {
			s.valued++
		}
	}
	return s
}

// takes reports whether the holder is to hear of a job: of nothing while it
// holds nothing.
func (l *link) takes(j job) bool {
	s := l.holds.Load()
	return len(s.pieces) > 0 && (j.begin != nil || j.bucket == flush || s.has[j.bucket])
}

// timely refuses frames that were sent with another map in mind.
func (l *link) timely(h wire.Header) error {
	now := l.holds.Load().epoch
	if h.Epoch == now || h.Kind == wire.Moved || h.Kind == wire.Error || h.Kind == wire.Bye {
		return nil
	}
	return fmt.Errorf("%s frame of epoch %d, this is epoch %d", h.Kind, h.Epoch, now)
}

// change takes the holder's word that variables have moved. left is how many
// values were to come, and returned is how many are now.
func (l *link) change(h wire.Header, left int) (int, error) {
	now, next := l.holds.Load(), l.coming.Swap(nil)
	if next == nil || h.Length != 0 || h.Epoch != next.epoch || h.Step != next.step || left != now.valued {
		return 0, fmt.Errorf("says that variables have moved, at step %d in epoch %d, which nobody asked for", h.Step, h.Epoch)
	}
	l.steps = next.step + 1
	l.came = make([]uint64, len(next.pieces))
	for i := range l.came {
		l.came[i] = l.steps
	}
	l.holds.Store(next)
	l.moved <- struct{}{}
	return next.valued, nil
}
