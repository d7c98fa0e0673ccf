package depot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/owner"
)

// part is this task's part in a save that is under way.
type part struct {
	id     string
	step   uint64
	number uint64 // of the snapshot
	wanted wanted
	cancel context.CancelCauseFunc
	pieces chan owner.Snapshot // the owner's, one
	state  chan state          // the worker's, one

	running sync.WaitGroup // its work, and that of others here; see Depot.join
}

// Save takes an owner's copy of its pieces and returns at once. It is the hook
// of owner.ServerConfig and owner.ClientConfig.
func (d *Depot) Save(s owner.Snapshot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.part; p != nil && p.behind(s) <= 0 {
		give(p.pieces, s, p.behind(s) == 0 && p.wanted.Pieces)
		return
	}
	d.early = &s // the chief's word is on its way
}

// behind compares a snapshot with the one that p is to have: one of a save before
// may come late, one of the next may be early.
func (p *part) behind(s owner.Snapshot) int {
	return cmp.Or(cmp.Compare(s.Step, p.step), cmp.Compare(s.Number, p.number))
}

// SaveCarried takes what a worker carried over from so many steps for the rows
// [lo, hi) of the global batch, and returns at once. The data is the depot's
// from here on.
func (d *Depot) SaveCarried(step uint64, lo, hi int, values map[string]Carried) {
	s := state{step, lo, hi, values}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.part; p != nil && p.step >= step {
		give(p.state, s, p.step == step && p.wanted.State)
		return
	}
	d.ahead = append(d.ahead, s)
	d.ahead = d.ahead[max(0, len(d.ahead)-mostAhead):]
}

// mostAhead is how many states wait for the chief's word: of the save that it is
// about to announce, and of the last step, which a worker brings unasked.
const mostAhead = 2

// give is for something that is wanted once at most.
func give[T any](to chan T, x T, wanted bool) {
	if !wanted {
		return
	}
	select {
	case to <- x:
	default:
	}
}

// begin starts this task's part of a save. One that is still under way is over
// for the chief.
func (d *Depot) begin(ctx context.Context, m message) error {
	if m.Wanted == nil {
		return errors.New("a save that wants nothing")
	}
	d.cancelPart(errors.New("the next save has begun"))
	ctx, cancel := context.WithCancelCause(ctx)
	p := &part{id: m.ID, step: m.Step, number: m.Number, wanted: *m.Wanted, cancel: cancel,
		pieces: make(chan owner.Snapshot, 1), state: make(chan state, 1)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.part = p
	close(d.begun)
	d.begun = make(chan struct{})
	if s := d.early; s != nil && p.behind(*s) <= 0 {
		give(p.pieces, *s, p.behind(*s) == 0)
		d.early = nil
	}
	for len(d.ahead) > 0 && d.ahead[0].step <= p.step {
		give(p.state, d.ahead[0], d.ahead[0].step == p.step)
		d.ahead = d.ahead[1:]
	}
	if p.wanted.Pieces {
		d.work(p, func() { d.report(p, d.savePieces(ctx, p)) })
	}
	if p.wanted.State {
		d.work(p, func() { d.report(p, d.saveState(ctx, p)) })
	}
	return nil
}

// work runs f as something of p. It needs d.mu.
func (d *Depot) work(p *part, f func()) {
	if d.closed {
		return
	}
	d.running.Add(1)
	p.running.Add(1)
	go func() {
		defer d.running.Done()
		defer p.running.Done()
		f()
	}()
}

// cancelPart ends what is under way here.
func (d *Depot) cancelPart(why error) {
	d.mu.Lock()
	p := d.part
	d.part = nil
	d.mu.Unlock()
	if p != nil {
		p.cancel(why)
	}
}

// busy names the checkpoint that is being written, "" for none.
func (d *Depot) busy() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.part == nil {
		return ""
	}
	return d.part.id
}

// finish takes the chief's word that a save is over.
func (d *Depot) finish(m message) {
	d.mu.Lock()
	p := d.part
	if p == nil || p.id != m.ID {
		p = nil
	} else {
		d.part = nil
	}
	d.mu.Unlock()
	if p != nil {
		p.cancel(errors.New("the save has failed elsewhere"))
	}
	if !m.Remove {
		return
	}
	d.start(func(context.Context) {
		if p != nil {
			p.running.Wait() // what is being written would be there again
		}
		if err := d.folder.Discard(m.ID); err != nil {
			d.config.logf(slog.LevelDebug, "checkpoints of %s: %v", d.self(), err)
		}
	})
}

// report tells the chief how this task's part went.
func (d *Depot) report(p *part, r report) {
	if err := d.hook("depot.report"); err != nil {
		r = report{State: r.State, Err: failure(err)}
	}
	d.up.post(message{Kind: reported, ID: p.id, Report: &r})
}

// await waits for what the trainer is to give, as long as most where that is
// not 0.
func await[T any](ctx context.Context, d *Depot, from <-chan T, what string, most time.Duration) (x T, err error) {
	if most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, most, fmt.Errorf("%s did not come within %v", what, most))
		defer cancel()
	}
	select {
	case x = <-from:
		return x, nil
	case <-ctx.Done():
		return x, context.Cause(ctx)
	case <-d.leaving:
	}
	select {
	case x = <-from:
		return x, nil
	default:
		return x, fmt.Errorf("%w, %s will not come", errClosed, what)
	}
}

// savePieces writes what the owner gives.
func (d *Depot) savePieces(ctx context.Context, p *part) report {
	s, err := await(ctx, d, p.pieces, "the owner's values", d.config.Silence)
	if err != nil {
		return report{Err: failure(err)}
	}
	r := report{Held: int64(s.Held)}
	content, err := describe(s)
	if err == nil && len(content.tensors) > 0 {
		r.Parts = content.parts
		r.File, r.Copy, err = d.keep(ctx, p, fileName(d.config.Peers.Self, false), content)
	}
	r.Err = failure(err)
	return r
}

// saveState writes what the worker gives, whenever its next step is over.
func (d *Depot) saveState(ctx context.Context, p *part) report {
	s, err := await(ctx, d, p.state, "the worker's state", 0)
	if err != nil {
		return report{State: true, Err: failure(err)}
	}
	r := report{State: true}
	content := s.describe(fileName(d.config.Peers.Self, true))
	if len(content.tensors) > 0 {
		r.Carried = content.carried
		r.File, r.Copy, err = d.keep(ctx, p, fileName(d.config.Peers.Self, true), content)
	}
	r.Err = failure(err)
	return r
}

// keep writes a file here and at the buddy's.
func (d *Depot) keep(ctx context.Context, p *part, name string, c content) (*checkpoint.File, bool, error) {
	file, err := d.write(ctx, p, name, c)
	if err != nil {
		return nil, false, err
	}
	if p.wanted.Buddy == nil {
		return &file, false, nil
	}
	return &file, true, d.sendCopy(ctx, p, file, *p.wanted.Buddy)
}
