package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/relay"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// Prefetch requests rows for the step after the one under way, or for the next
// one between two steps: all in one request per holder, and as early as
// possible. Rows that the step under way leaves alone come while it is under
// way. Prefetch does not wait. Await returns when the rows are there; until then
// the client owns wanted.
//
// There is one prefetch request per step at most. A request that is not awaited
// does no harm, but it is the last. Workers must be in step: mode sync.
func (r *Rows) Prefetch(wanted []message.Wanted) error {
	step := r.progress.step
	if r.progress.within {
		step++
	}
	if err := r.prefetchable(step, wanted); err != nil {
		return err
	}
	a := newAsking(step)
	r.asking, r.asked = a, step+1
	r.holders.prefetch(a, wanted)
	return r.holders.reason()
}

func (r *Rows) prefetchable(step uint64, wanted []message.Wanted) error {
	h := r.holders
	switch {
	case h.reason() != nil:
		return h.reason()
	case !h.d.Sync.InStep():
		return fmt.Errorf("rows wanted with synchronisation %s: workers must take their steps together; use Pull", h.d.Sync)
	case r.asking != nil:
		return fmt.Errorf("rows of step %d are wanted, those of step %d were not awaited", step, r.asking.step)
	case r.asked == step+1:
		return fmt.Errorf("rows of step %d are wanted twice", step)
	}
	for i, w := range wanted {
		if err := h.requestable(w.Variable, w.Index, w.Into); err != nil {
			return err
		}
		if slices.ContainsFunc(wanted[:i], func(other message.Wanted) bool { return other.Variable == w.Variable }) {
			return fmt.Errorf("rows of variable %q are wanted twice", h.d.Variables[w.Variable].Name)
		}
	}
	return nil
}

// Await returns when all rows of the last prefetch request are there, with their
// values after all steps before the one that they are wanted for. It must be
// called before that one begins.
func (r *Rows) Await(ctx context.Context) error {
	h, a, step := r.holders, r.asking, r.progress.step
	switch {
	case h.reason() != nil:
		return h.reason()
	case a == nil:
		return errors.New("rows are awaited that nobody wanted")
	case r.progress.within || step != a.step:
		return fmt.Errorf("rows of step %d are awaited at step %d", a.step, step)
	}
	began := time.Now()
	if _, err := await(ctx, h, a.done); err != nil {
		return err
	}
	h.config.Trace.Span("wait", "rows", began, time.Now(), "step", a.step)
	r.asking = nil
	for _, p := range a.own {
		if err := h.local.shard(p.Piece).Read(p.index, p.into); err != nil {
			return err
		}
	}
	if !a.direct.Load() {
		return nil
	}
	for _, w := range a.host {
		if err := r.Pull(ctx, w.Variable, w.Index, w.Into); err != nil {
			return err
		}
	}
	return nil
}

// asking is a request for rows of a step, to all that have some.
type asking struct {
	step   uint64
	own    []portion        // of pieces that this worker holds
	host   []message.Wanted // what is requested through the first worker of the host
	direct atomic.Bool      // which has no way to ask any more
	left   atomic.Int32     // replies that are to come, and one until all are asked
	done   chan struct{}
	then   func() // called when all replies are there; nil: nothing
}

func newAsking(step uint64) *asking {
	a := &asking{step: step, done: make(chan struct{})}
	a.left.Store(1)
	return a
}

// answered counts a reply.
func (a *asking) answered() {
	if a.left.Add(-1) > 0 {
		return
	}
	if a.then != nil {
		a.then()
	}
	close(a.done)
}

// prefetch requests rows from whoever has them.
func (h *holders) prefetch(a *asking, wanted []message.Wanted) {
	var others []message.Wanted
	for _, w := range wanted {
		if h.travelsWithHost(w.Variable) {
			a.host = append(a.host, w)
		} else {
			others = append(others, w)
		}
	}
	switch {
	case h.up != nil:
		h.up.ask(&demand{asking: a, portions: h.portions(h.up.holds.Load().pieces, a.host)})
	case h.relay != nil:
		a.left.Add(1)
		own := relay.Request{Rank: h.rank, Done: func(direct bool) {
			a.direct.Store(direct)
			a.answered()
		}}
		for _, w := range a.host {
			own.Rows = append(own.Rows, message.Rows{Place: layout.Place{Variable: w.Variable}, Index: w.Index})
			own.Into = append(own.Into, w.Into)
		}
		h.relay.Rows.Add(a.step, own)
	}
	h.request(a, others)
	a.answered()
}

// travelsWithHost reports whether rows of a variable travel with those of the
// other workers of the host.
func (h *holders) travelsWithHost(variable int) bool {
	if h.up == nil && h.relay == nil {
		return false
	}
	i := slices.IndexFunc(h.d.Pieces, func(p layout.Piece) bool { return p.Variable == variable })
	return h.d.Holders[h.d.Pieces[i].Holder].Role == cluster.PS
}

// request requests from every holder its share.
func (h *holders) request(a *asking, wanted []message.Wanted) {
	for _, l := range h.links {
		if l != nil {
			if s := (&demand{asking: a, portions: h.portions(l.holds.Load().pieces, wanted)}); len(s.portions) > 0 {
				l.ask(s)
			}
			continue
		}
		a.own = h.portions(h.local.serves.Load().pieces, wanted)
		for _, p := range a.own {
			h.local.shard(p.Piece).Ask(a.step, p.index)
			h.local.volumes[p.Variable].pulled.Add(uint64(len(p.index)))
		}
	}
}

// portion is what is wanted of one piece.
type portion struct {
	layout.Piece
	size  int // bytes of a row
	index []int64
	into  []byte
	came  []bool // by row
	left  int    // rows that did not come yet
}

// portions returns what is wanted of some pieces.
func (h *holders) portions(pieces []layout.Piece, wanted []message.Wanted) (all []portion) {
	for _, p := range pieces {
		for _, w := range wanted {
			if w.Variable != p.Variable {
				continue
			}
			from, _ := slices.BinarySearch(w.Index, int64(p.Offset))
			n, _ := slices.BinarySearch(w.Index[from:], int64(p.Offset+p.Count))
			if n == 0 {
				continue
			}
			size := h.d.Variables[p.Variable].UnitBytes()
			all = append(all, portion{
				Piece: p, size: size, index: w.Index[from : from+n], into: w.Into[from*size : (from+n)*size],
				came: make([]bool, n), left: n,
			})
		}
	}
	return all
}

// take notes rows of the piece, among those that are wanted.
func (p *portion) take(index []int64, values []byte) error {
	at := 0
	for _, row := range index {
		n, found := slices.BinarySearch(p.index[at:], row)
		if !found {
			return fmt.Errorf("row %d of variable %d, which is not asked for", row, p.Variable)
		}
		at += n
		copy(p.into[at*p.size:(at+1)*p.size], values)
		values = values[p.size:]
		if !p.came[at] {
			p.came[at] = true
			p.left--
		}
		at++
	}
	return nil
}

// demand is what one holder is asked for.
type demand struct {
	asking   *asking
	portions []portion
	longest  uint64 // bytes that a reply can have
}

// ask sends a demand's request after what was posted before.
func (l *link) ask(s *demand) {
	s.asking.left.Add(1)
	body := message.AppendCount(nil, len(s.portions))
	rest := wire.HeaderSize + len(body)
	s.longest = uint64(message.MaxHead(len(s.portions)))
	for _, p := range s.portions {
		before := len(body)
		body = message.AppendRows(body, layout.Place{Variable: p.Variable, Offset: p.Offset}, p.index)
		size := len(body) - before
		s.longest += uint64(size + message.Padded(len(p.into)))
		l.volumes[p.Variable].sent.Add(uint64(size))
	}
	l.overhead(s, rest, func(v *volume, n uint64) { v.sent.Add(n) })
	l.demand.Store(s)
	l.jobs <- job{request: body, bucket: flush, step: s.asking.step}
}

// overhead counts what a frame has in addition to rows, in equal parts for the
// pieces that are asked for.
func (l *link) overhead(s *demand, rest int, count func(v *volume, n uint64)) {
	n := len(s.portions)
	if n == 0 {
		count(&l.volumes[l.holders.d.LossIndex()], uint64(rest))
	}
	for i, p := range s.portions {
		count(&l.volumes[p.Variable], uint64(rest*(i+1)/n-rest*i/n))
	}
}

// given takes an early or a final reply.
func (l *link) given(f wire.Header) error {
	s := l.demand.Load()
	if s == nil || f.Step != s.asking.step || f.Length > s.longest {
		return fmt.Errorf("%s rows of step %d, %d bytes, which nobody asked for", f.Kind, f.Step, f.Length)
	}
	body := l.room(int(f.Length))
	began := time.Now()
	if err := l.session.Payload(body); err != nil {
		return err
	}
	if trace := l.holders.config.Trace; trace.Enabled() {
		trace.Span("receive", f.Kind.String()+" rows", began, time.Now(), "bytes", len(body), "from", l.session.Task.String())
	}
	if err := l.take(s, body); err != nil {
		return fmt.Errorf("%s rows: %w", f.Kind, err)
	}
	if f.Kind == wire.Early {
		return nil
	}
	if l.index < 0 && f.Part == message.Direct {
		s.asking.direct.Store(true)
	}
	for _, p := range s.portions {
		if p.left > 0 && !s.asking.direct.Load() {
			return fmt.Errorf("final rows: %d of variable %d did not come", p.left, p.Variable)
		}
	}
	l.demand.Store(nil)
	s.asking.answered()
	return nil
}

// take copies the rows of a reply to where they are wanted.
func (l *link) take(s *demand, body []byte) error {
	has := l.holds.Load()
	lists, values, err := message.DecodeRows(body, len(s.portions), func(at layout.Place) (lo, hi int64, ok bool) {
		return has.bounds(at, l.holders.d)
	})
	if err != nil {
		return err
	}
	at, rest := 0, wire.HeaderSize+len(body)
	for _, rows := range lists {
		for at < len(s.portions) && (layout.Place{Variable: s.portions[at].Variable, Offset: s.portions[at].Offset}) != rows.Place {
			at++
		}
		if at == len(s.portions) {
			return fmt.Errorf("variable %d from row %d, which is not asked for", rows.Variable, rows.Offset)
		}
		p := &s.portions[at]
		size := len(rows.Index) * p.size
		if len(values) < message.Padded(size) {
			return fmt.Errorf("%d bytes of values for %d rows of %d", len(values), len(rows.Index), p.size)
		}
		if err := p.take(rows.Index, values[:size]); err != nil {
			return err
		}
		values = values[message.Padded(size):]
		v := &l.volumes[p.Variable]
		v.pulled.Add(uint64(len(rows.Index)))
		v.received.Add(uint64(rows.Size + message.Padded(size)))
		rest -= rows.Size + message.Padded(size)
	}
	if len(values) > 0 {
		return fmt.Errorf("%d bytes after the rows", len(values))
	}
	l.overhead(s, rest, func(v *volume, n uint64) { v.received.Add(n) })
	return nil
}
