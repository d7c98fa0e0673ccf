package server

import (
	"fmt"
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// replies answers one worker's requests for rows of sparse variables.
//
// The goroutine that reads the worker's connection handles the requests.
// Between two steps it answers a prefetch request completely. During a step it
// sends an early reply with those requested rows that no worker had requested
// for the current step. At the end of the step, the writer goroutine sends a
// final reply: the other rows, and the early rows that the step has changed
// nevertheless.
type replies struct {
	requested uint64 // step of the last prefetch request, plus 1; 0 means that there was none
	reply     message.Reply
	raw       []byte
	index     []int64
	values    message.Memory

	mu   sync.Mutex
	busy bool      // true if the worker has begun a step that is not complete
	due  []dueRows // rows to send in the final reply; nil means that no final reply is to be sent
}

// dueRows are rows of one piece that a worker has requested and that the final
// reply may have to contain.
type dueRows struct {
	at    layout.Place
	shard *aggregate.Shard
	rest  []int64 // requested rows that were not sent in the early reply
	early []int64 // requested rows that were sent in the early reply; the final reply repeats those that the step has changed
}

// begin records that the worker has begun a step.
func (r *replies) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = true
}

// read reads and checks a prefetch request, in which the worker asks for the
// rows of its next step. begun is the number of steps that the worker has
// begun; the request must be for the step after these.
func (r *replies) read(h wire.Header, e *aggregate.Shards, begun uint64, from message.Payload) ([]message.Rows, error) {
	if h.Step != begun || r.requested == begun+1 {
		return nil, fmt.Errorf("wants rows of step %d, %d steps were begun, or twice", h.Step, begun)
	}
	r.requested = begun + 1
	longest := uint64(message.MaxHead(len(e.All())))
	for _, s := range e.All() {
		if e.Declaration().Variable(s.Variable).Sparse != nil {
			longest += aggregate.MaxRows(s.Count, 0)
		}
	}
	if h.Length > longest {
		return nil, fmt.Errorf("wants rows: %d bytes, want at most %d", h.Length, longest)
	}
	r.raw = slices.Grow(r.raw[:0], int(h.Length))[:h.Length]
	if err := from.Payload(r.raw); err != nil {
		return nil, fmt.Errorf("wants rows: %w", err)
	}
	all, rest, err := message.DecodeRows(r.raw, len(e.All()), func(at layout.Place) (lo, hi int64, ok bool) {
		i, ok := e.Find(at)
		if !ok || e.Declaration().Variable(at.Variable).Sparse == nil {
			return 0, 0, false
		}
		lo, hi = e.All()[i].Bounds()
		return lo, hi, true
	})
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes after the lists", len(rest))
	}
	if err != nil {
		return nil, fmt.Errorf("wants rows: %w", err)
	}
	return all, nil
}

// answer sends the requested rows. During a step, it leaves out the rows that
// the step may change; the final reply will contain them.
func (r *replies) answer(step uint64, e *aggregate.Shards, requested []message.Rows, to *peers.Session) error {
	var all []dueRows
	for _, rows := range requested {
		shard, _ := e.Find(rows.Place)
		all = append(all, dueRows{at: rows.Place, shard: e.All()[shard], rest: rows.Index})
		e.All()[shard].Ask(step, rows.Index)
	}
	r.mu.Lock()
	busy := r.busy
	r.mu.Unlock()
	if busy {
		if err := r.sendEarly(step, all, to); err != nil {
			return err
		}
		if r.leave(all) {
			return nil
		}
	}
	return to.Send(final(&r.reply, step, all))
}

// sendEarly sends those requested rows that no worker had requested for the
// current step. If the current step changes one nevertheless, the final reply
// repeats the row.
func (r *replies) sendEarly(step uint64, all []dueRows, to *peers.Session) error {
	var now []message.Share
	for i := range all {
		r := &all[i]
		if r.early, r.rest = r.shard.Split(step-1, r.rest); len(r.early) > 0 {
			now = append(now, message.Share{Rows: message.Rows{Place: r.at, Index: r.early}, From: r.shard})
		}
	}
	if len(now) == 0 {
		return nil
	}
	return to.Send(r.reply.Frame(wire.EarlyReply, step, now))
}

// leave stores rows for the final reply, which another goroutine sends at the
// end of the step. It returns false if the step has already ended.
func (r *replies) leave(all []dueRows) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy {
		r.due = all
	}
	return r.busy
}

// end records that the worker's step has ended. It returns the rows to send in
// the final reply, or nil if no final reply is needed.
func (r *replies) end() []dueRows {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.due
	r.busy, r.due = false, nil
	return all
}

// final builds the final reply. It contains the rows that were not in the
// early reply, and the rows that have changed since the early reply.
func final(reply *message.Reply, step uint64, all []dueRows) wire.Frame {
	var last []message.Share
	for _, o := range all {
		index := o.rest
		if len(o.early) > 0 {
			if again := o.shard.Changed(o.early); len(again) > 0 {
				index = sparse.Union(index, again)
			}
		}
		if len(index) > 0 {
			last = append(last, message.Share{Rows: message.Rows{Place: o.at, Index: index}, From: o.shard})
		}
	}
	return reply.Frame(wire.FinalReply, step, last)
}

// pull replies with the current values of rows of one piece. The payload of
// the request lists the rows. If the payload is empty, the reply contains
// consecutive rows from row h.Step on, at most message.RangeRows of them.
func (r *replies) pull(h wire.Header, e *aggregate.Shards, on *peers.Session) error {
	i, err := find(e, h, wire.Pull)
	if err != nil {
		return err
	}
	shard := e.All()[i]
	if shard.RowBytes() == 0 {
		return fmt.Errorf("pulls rows of variable %d, which is dense", h.Variable)
	}
	pull := r.pullRange
	if h.Length > 0 {
		pull = r.pullList
	}
	values, err := pull(h, shard, on)
	if err != nil {
		return fmt.Errorf("pulls rows of variable %d: %w", h.Variable, err)
	}
	return on.Send(wire.Frame{
		Header:  wire.Header{Kind: wire.Rows, Variable: h.Variable, Offset: h.Offset, Part: h.Part},
		Payload: values,
	})
}

func (r *replies) pullRange(h wire.Header, shard *aggregate.Shard, _ message.Payload) ([]byte, error) {
	lo, hi := shard.Bounds()
	if h.Step < uint64(lo) || h.Step >= uint64(hi) {
		return nil, fmt.Errorf("rows from row %d of [%d, %d)", h.Step, lo, hi)
	}
	values := r.values.Bytes(min(message.RangeRows(shard.RowBytes()), int(hi)-int(h.Step)) * shard.RowBytes())
	return values, shard.CopyRows(int64(h.Step), values)
}

func (r *replies) pullList(h wire.Header, shard *aggregate.Shard, from message.Payload) ([]byte, error) {
	lo, hi := shard.Bounds()
	if most := aggregate.MaxRows(int(hi-lo), 0); h.Length > most {
		return nil, fmt.Errorf("a list of %d bytes, want at most %d", h.Length, most)
	}
	r.raw = slices.Grow(r.raw[:0], int(h.Length))[:h.Length]
	if err := from.Payload(r.raw); err != nil {
		return nil, err
	}
	index, rest, err := sparse.DecodeIndex(r.raw, lo, hi, r.index)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes after the list", len(rest))
	}
	r.index = index
	values := r.values.Bytes(len(index) * shard.RowBytes())
	return values, shard.Read(index, values)
}
