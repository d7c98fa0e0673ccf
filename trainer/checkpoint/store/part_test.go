package store

import (
	"context"
	"testing"

	"github.com/plx-run/plx/trainer/exchange/transition"
)

// Asynchronous workers may have several saves of the same step. Each save must
// get its own snapshot, even if snapshots of another save arrive early or
// late.
func TestSeveralSavesOfOneStep(t *testing.T) {
	d := &parts{}
	begin := func(number uint64) *part {
		t.Helper()
		d.begin(context.Background(), message{Kind: begin, Step: 5, Number: number})
		d.current.wanted.Pieces = true // set only now, so that no goroutine takes the snapshot
		return d.current
	}
	has := func(p *part, number uint64) {
		t.Helper()
		select {
		case s := <-p.pieces:
			if s.Number != number {
				t.Errorf("has snapshot %d, want %d", s.Number, number)
			}
		default:
			t.Errorf("has no snapshot, want %d", number)
		}
	}
	p := begin(0)
	d.save(transition.Snapshot{Step: 5})
	has(p, 0)
	d.save(transition.Snapshot{Step: 5, Number: 1}) // arrives before this task knows that the previous save is over
	has(begin(1), 1)
	d.cancel(errClosed)
	d.save(transition.Snapshot{Step: 5, Number: 2}) // belongs to a save that has already failed
	p = begin(3)
	d.save(transition.Snapshot{Step: 5, Number: 3})
	has(p, 3)
}
