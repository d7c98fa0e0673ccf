package store

import (
	"context"
	"testing"

	"github.com/plx-run/plx/trainer/exchange/transition"
)

// Where workers are not in step there may be several saves of one step: what
// comes of each is that one's alone, whatever is on its way beside it.
func TestSeveralSavesOfOneStep(t *testing.T) {
	d := &parts{}
	begin := func(number uint64) *part {
		t.Helper()
		d.begin(context.Background(), message{Kind: begin, Step: 5, Number: number})
		d.current.wanted.Pieces = true // and nobody is to work on it
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
	d.save(transition.Snapshot{Step: 5, Number: 1}) // before this task has heard that the save is over
	has(begin(1), 1)
	d.cancel(errClosed)
	d.save(transition.Snapshot{Step: 5, Number: 2}) // for a save that has failed
	p = begin(3)
	d.save(transition.Snapshot{Step: 5, Number: 3})
	has(p, 3)
}
