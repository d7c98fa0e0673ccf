package exchange

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// wants is what a worker asked for and did not get yet. The reader of its
// connection takes requests, and answers them when no step is under way; else
// the writer does, behind the frame that ends the step.
type wants struct {
	rows  answer // the reader's
	asked uint64 // step of the last request, plus one; the reader's

	mu   sync.Mutex
	busy bool   // a step of the worker is under way
	open []owed // to be answered when it is over, nil: nothing
}

// owed is a piece and what is to be sent of it, or has been.
type owed struct {
	item
	table source
	early []int64          // sent already; those that the step changed are sent again
	kept  *aggregate.Shard // that knows which, nil: none was sent
}

// source is where rows are read.
type source interface {
	RowBytes() int
	Read(index []int64, into []byte) error
}

// answer is memory for a payload.
type answer struct {
	head []byte
	pulled
}

func (w *wants) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = true
}

// want takes a request for rows of the step that follows those begun.
func (p *peer) want(h wire.Header) error {
	e := p.server.shards
	if !e.Declaration().Sync.InStep() || h.Step != p.step || p.wants.asked == p.step+1 {
		return fmt.Errorf("wants rows of step %d, %d steps were begun, or twice", h.Step, p.step)
	}
	p.wants.asked = p.step + 1
	items, err := p.items(h)
	if err != nil {
		return fmt.Errorf("wants rows: %w", err)
	}
	if r := p.server.relay; r != nil {
		r.union.want(h.Step, hostWant{rank: p.task.Index, items: items})
		return nil
	}
	var wanted []owed
	for _, i := range items {
		at, _ := e.Find(i.Place)
		t := e.All()[at]
		t.Ask(h.Step, i.index)
		wanted = append(wanted, owed{item: i, table: t, kept: t})
	}
	return p.answer(h.Step, wanted)
}

// items reads a request.
func (p *peer) items(h wire.Header) ([]item, error) {
	e := p.server.shards
	longest := uint64(maxItems(len(e.All())))
	for _, s := range e.All() {
		if e.Declaration().Variable(s.Variable).Sparse != nil {
			longest += aggregate.MaxRows(s.Count, 0)
		}
	}
	if h.Length > longest {
		return nil, fmt.Errorf("%d bytes, want at most %d", h.Length, longest)
	}
	p.pulled.raw = sized(p.pulled.raw, int(h.Length))
	if err := p.conn.Payload(p.pulled.raw); err != nil {
		return nil, err
	}
	items, rest, err := decodeItems(p.pulled.raw, len(e.All()), func(at layout.Place) (lo, hi int64, ok bool) { return rowBounds(e, at) })
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes after the lists", len(rest))
	}
	return items, err
}

// rowBounds returns the rows of a sparse piece.
func rowBounds(e *aggregate.Shards, at layout.Place) (lo, hi int64, ok bool) {
	i, ok := e.Find(at)
	if !ok || e.Declaration().Variable(at.Variable).Sparse == nil {
		return 0, 0, false
	}
	lo, hi = e.All()[i].Bounds()
	return lo, hi, true
}

// answer sends what can be sent, and leaves the rest to the end of the step
// that is under way.
func (p *peer) answer(step uint64, wanted []owed) error {
	w := &p.wants
	w.mu.Lock()
	busy := w.busy
	w.mu.Unlock()
	if busy {
		if err := p.sendEarly(step, wanted); err != nil {
			return err
		}
		w.mu.Lock()
		if w.busy {
			w.open = wanted
			w.mu.Unlock()
			return nil
		}
		w.mu.Unlock()
	}
	return p.conn.Send(w.rows.final(step, wanted))
}

// sendEarly sends those rows that nobody wanted for the step under way: it
// will hardly change them.
func (p *peer) sendEarly(step uint64, wanted []owed) error {
	var now []owed
	for i := range wanted {
		g := &wanted[i]
		g.early, g.index = g.kept.Split(step-1, g.index)
		if len(g.early) > 0 {
			now = append(now, owed{item: item{Place: g.Place, index: g.early}, table: g.table})
		}
	}
	if len(now) == 0 {
		return nil
	}
	return p.conn.Send(p.wants.rows.frame(wire.Early, step, now))
}

// behindDone adds to what the writer sends at the end of a step what the
// worker still waits for.
func (p *peer) behindDone(w *writer) []wire.Frame {
	p.wants.mu.Lock()
	open := p.wants.open
	p.wants.busy, p.wants.open = false, nil
	p.wants.mu.Unlock()
	if open == nil {
		return w.frames
	}
	return append(w.frames, w.rows.final(w.frames[len(w.frames)-1].Step, open))
}

// final makes the last answer: what was not sent, and what has changed since.
func (a *answer) final(step uint64, wanted []owed) wire.Frame {
	var last []owed
	for _, g := range wanted {
		if len(g.early) > 0 {
			if again := g.kept.Changed(g.early); len(again) > 0 {
				g.index = sparse.Union(g.index, again)
			}
		}
		if len(g.index) > 0 {
			last = append(last, g)
		}
	}
	return a.frame(wire.Final, step, last)
}

// frame makes an answer. The payload is good until the next.
func (a *answer) frame(kind wire.Kind, step uint64, rows []owed) wire.Frame {
	a.head = binary.AppendUvarint(a.head[:0], uint64(len(rows)))
	size := 0
	for _, g := range rows {
		a.head = appendItem(a.head, g.Place, g.index)
		size += padded(len(g.index) * g.table.RowBytes())
	}
	payload := a.bytes(padded(len(a.head)) + size)
	clear(payload[copy(payload, a.head):padded(len(a.head))])
	at := padded(len(a.head))
	for _, g := range rows {
		n := len(g.index) * g.table.RowBytes()
		if err := g.table.Read(g.index, payload[at:at+n]); err != nil {
			panic(err) // the list was checked
		}
		clear(payload[at+n : at+padded(n)])
		at += padded(n)
	}
	return wire.Frame{Header: wire.Header{Kind: kind, Step: step}, Payload: payload}
}
