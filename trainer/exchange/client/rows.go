package client

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// Rows gets rows of sparse variables from their holders.
type Rows struct {
	holders  *holders
	progress *progress
	asking   *asking // the prefetch request that was not awaited; nil: none
	asked    uint64  // 1 + step of the last prefetch request; 0 means never
}

// Pull copies rows of a sparse variable, by strictly ascending index, to into,
// one after the other, as they are at the moment. In a step it must be called
// before the virtual worker contributes. Several goroutines may call it; after
// an error the client cannot be used.
func (r *Rows) Pull(ctx context.Context, variable int, index []int64, into []byte) error {
	h := r.holders
	if err := h.requestable(variable, index, into); err != nil {
		return err
	}
	var waiting []*pull
	for _, p := range h.portions(h.shards.Load().d.Pieces, []message.Wanted{{Variable: variable, Index: index, Into: into}}) {
		w, err := h.pull(wire.Header{}, p.Piece, p.index, p.into)
		if err != nil {
			return err
		}
		waiting = append(waiting, w)
	}
	return h.collect(ctx, waiting)
}

// Whole copies all values of a variable to into, for saving and comparing.
// Those of a sparse one are pulled from their holders, row by row as they are
// at the moment.
func (r *Rows) Whole(ctx context.Context, variable int, into []byte) error {
	h := r.holders
	if variable < 0 || variable >= len(h.d.Variables) {
		return fmt.Errorf("variable %d of %d", variable, len(h.d.Variables))
	}
	v := h.d.Variables[variable]
	if want := v.NumElements() * v.Dtype.Size(); len(into) != want {
		return fmt.Errorf("variable %q: %d bytes for %d", v.Name, len(into), want)
	}
	most := message.RangeRows(v.UnitBytes())
	for _, p := range h.shards.Load().d.Pieces {
		if p.Variable != variable {
			continue
		}
		if v.Sparse == nil {
			copy(into[p.Offset*v.UnitBytes():], h.memory.of(p))
			continue
		}
		if err := h.working(); err != nil {
			return err
		}
		for from := p.Offset; from < p.Offset+p.Count; from += most {
			n := min(most, p.Offset+p.Count-from)
			w, err := h.pull(wire.Header{Step: uint64(from)}, p, nil, into[from*v.UnitBytes():(from+n)*v.UnitBytes()])
			if err == nil {
				err = h.collect(ctx, []*pull{w})
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// requestable returns what is wrong with a request for rows.
func (h *holders) requestable(variable int, index []int64, into []byte) error {
	if variable < 0 || variable >= len(h.d.Variables) || h.d.Variables[variable].Sparse == nil {
		return fmt.Errorf("rows of variable %d, which is not sparse", variable)
	}
	if err := h.working(); err != nil {
		return err
	}
	v := h.d.Variables[variable]
	check := sparse.Rows[float64]{Index: index}
	if err := check.Check(0, int64(v.Shape[0]), 0); err != nil {
		return fmt.Errorf("rows of variable %q: %w", v.Name, err)
	}
	if len(into) != len(index)*v.UnitBytes() {
		return fmt.Errorf("rows of variable %q: %d bytes for %d rows of %d", v.Name, len(into), len(index), v.UnitBytes())
	}
	return nil
}

// pulls are the pulls that are under way.
type pulls struct {
	mu   sync.Mutex
	last uint32
	open map[uint32]*pull
}

// pull is a piece's share of what is wanted.
type pull struct {
	variable int
	into     []byte
	done     chan struct{}
}

// add returns the number of a new pull.
func (p *pulls) add(variable int, into []byte) (uint32, *pull) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[uint32]*pull{}
	}
	for p.last++; p.open[p.last] != nil; p.last++ {
	}
	w := &pull{variable: variable, into: into, done: make(chan struct{})}
	p.open[p.last] = w
	return p.last, w
}

// take returns a pull and forgets it.
func (p *pulls) take(number uint32) *pull {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.open[number]
	delete(p.open, number)
	return w
}

// pull requests rows of a piece: those of a list, or without a list as many
// from row f.Step on as fit in into. It returns nil if the rows are there at
// once, because this worker holds the piece.
func (h *holders) pull(f wire.Header, p layout.Piece, index []int64, into []byte) (*pull, error) {
	l := h.links[p.Holder]
	if l == nil {
		s := h.local.shard(p)
		if index == nil {
			return nil, s.CopyRows(int64(f.Step), into)
		}
		return nil, s.Read(index, into)
	}
	var body []byte
	if index != nil {
		body = sparse.AppendIndex(nil, index)
	}
	l.volumes[p.Variable].sent.Add(uint64(wire.HeaderSize + len(body)))
	number, w := h.pulls.add(p.Variable, into)
	f.Kind, f.Variable, f.Offset, f.Part = wire.Pull, uint32(p.Variable), uint64(p.Offset), number
	if err := l.session.Send(wire.Frame{Header: f, Payload: body}); err != nil {
		l.check(err)
		return nil, cmp.Or(h.reason(), err)
	}
	return w, nil
}

// collect waits for what was pulled.
func (h *holders) collect(ctx context.Context, waiting []*pull) error {
	for _, w := range waiting {
		if w != nil {
			if _, err := await(ctx, h, w.done); err != nil {
				return err
			}
		}
	}
	return nil
}

// rows reads the reply to a pull to where it is wanted.
func (l *link) rows(f wire.Header) error {
	w := l.holders.pulls.take(f.Part)
	if w == nil || int(f.Variable) != w.variable || f.Length != uint64(len(w.into)) {
		return fmt.Errorf("rows of variable %d, %d bytes, which nobody asked for", f.Variable, f.Length)
	}
	if err := l.session.Payload(w.into); err != nil {
		return err
	}
	v := &l.volumes[f.Variable]
	v.pulled.Add(uint64(len(w.into) / l.holders.d.Variables[f.Variable].UnitBytes()))
	v.received.Add(wire.HeaderSize + f.Length)
	close(w.done)
	return nil
}
