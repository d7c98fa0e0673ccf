package exchange

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// asking is a request for rows of a step, to all that have some.
type asking struct {
	step   uint64
	own    []portion    // of pieces that this worker owns
	host   []Wanted     // what is asked through the first worker of the host
	direct bool         // which has no way to ask any more
	left   atomic.Int32 // answers that are to come, and one until all are asked
	done   chan struct{}
	then   func() // called when all answers are there; nil: nothing
}

// demand is what one holder is asked for.
type demand struct {
	asking   *asking
	portions []portion
	longest  uint64 // that an answer can be
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

// seek asks whoever has the rows.
func (c *Client) seek(a *asking, wanted []Wanted) {
	a.left.Store(1)
	var others []Wanted
	for _, w := range wanted {
		if c.relays(w.Variable) {
			a.host = append(a.host, w)
		} else {
			others = append(others, w)
		}
	}
	switch {
	case c.up != nil:
		c.up.ask(&demand{asking: a, portions: c.portions(c.up.holds.Load().pieces, a.host)})
	case c.relay != nil:
		a.left.Add(1)
		own := hostWant{rank: c.rank, asking: a, into: a.host}
		for _, w := range a.host {
			own.items = append(own.items, item{Place: layout.Place{Variable: w.Variable, Offset: 0}, index: w.Index})
		}
		c.relay.union.want(a.step, own)
	}
	c.askOwners(a, others)
	a.answered()
}

// relays reports whether rows of a variable travel with those of the host.
func (c *Client) relays(variable int) bool {
	if c.up == nil && c.relay == nil {
		return false
	}
	i := slices.IndexFunc(c.d.Pieces, func(p layout.Piece) bool { return p.Variable == variable })
	return c.d.Holders[c.d.Pieces[i].Holder].Role == cluster.PS
}

// askHolders asks every holder for its share.
func (c *Client) askOwners(a *asking, wanted []Wanted) {
	for _, l := range c.links {
		if l == nil {
			a.own = c.portions(c.local.serves.Load().pieces, wanted)
			c.local.wish(a)
			continue
		}
		if s := (&demand{asking: a, portions: c.portions(l.holds.Load().pieces, wanted)}); len(s.portions) > 0 {
			l.ask(s)
		}
	}
}

// answered counts an answer.
func (a *asking) answered() {
	if a.left.Add(-1) > 0 {
		return
	}
	if a.then != nil {
		a.then()
	}
	close(a.done)
}

// portions returns what is wanted of some pieces.
func (c *Client) portions(pieces []layout.Piece, wanted []Wanted) (all []portion) {
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
			size := c.d.Variables[p.Variable].UnitBytes()
			all = append(all, portion{
				Piece: p, size: size, index: w.Index[from : from+n], into: w.Into[from*size : (from+n)*size],
				came: make([]bool, n), left: n,
			})
		}
	}
	return all
}

// ask sends a demand's request behind what was posted before.
func (l *link) ask(s *demand) {
	s.asking.left.Add(1)
	body, sizes := encodeWant(s.portions)
	s.longest = uint64(maxItems(len(s.portions)))
	rest := wire.HeaderSize + len(body)
	for i, p := range s.portions {
		s.longest += uint64(sizes[i] + padded(len(p.into)))
		rest -= sizes[i]
		l.volumes[p.Variable].sent.Add(uint64(sizes[i]))
	}
	l.overhead(s, rest, func(v *volume, n uint64) { v.sent.Add(n) })
	l.demand.Store(s)
	l.jobs <- job{want: body, bucket: flush, step: s.asking.step}
}

// overhead counts what a frame has beside rows, in equal parts for the pieces
// that are asked for.
func (l *link) overhead(s *demand, rest int, count func(v *volume, n uint64)) {
	if len(s.portions) == 0 {
		count(&l.volumes[l.client.d.LossIndex()], uint64(rest))
	}
	for i, p := range s.portions {
		count(&l.volumes[p.Variable], shared(rest, i, len(s.portions)))
	}
}

// given takes an answer to a Want.
func (l *link) given(h wire.Header) error {
	s := l.demand.Load()
	if s == nil || h.Step != s.asking.step || h.Length > s.longest {
		return fmt.Errorf("%s rows of step %d, %d bytes, which nobody asked for", h.Kind, h.Step, h.Length)
	}
	l.body = sized(l.body, int(h.Length))
	began := time.Now()
	if err := l.conn.Payload(l.body); err != nil {
		return err
	}
	if trace := l.client.config.Trace; trace.Enabled() {
		trace.Span("receive", h.Kind.String()+" rows", began, time.Now(), "bytes", len(l.body), "from", l.task.String())
	}
	if err := l.take(s, l.body); err != nil {
		return fmt.Errorf("%s rows: %w", h.Kind, err)
	}
	if h.Kind == wire.Early {
		return nil
	}
	if l.index < 0 && h.Part == direct {
		s.asking.direct = true
	}
	for _, p := range s.portions {
		if p.left > 0 && !s.asking.direct {
			return fmt.Errorf("final rows: %d of variable %d did not come", p.left, p.Variable)
		}
	}
	l.demand.Store(nil)
	s.asking.answered()
	return nil
}

// take copies the rows of an answer to where they are wanted.
func (l *link) take(s *demand, body []byte) error {
	items, values, err := decodeItems(body, len(s.portions), l.bounds)
	if err != nil {
		return err
	}
	at, rest := 0, wire.HeaderSize+len(body)
	for _, item := range items {
		for at < len(s.portions) && (layout.Place{Variable: s.portions[at].Variable, Offset: s.portions[at].Offset}) != item.Place {
			at++
		}
		if at == len(s.portions) {
			return fmt.Errorf("variable %d from row %d, which is not asked for", item.Variable, item.Offset)
		}
		p := &s.portions[at]
		size := len(item.index) * p.size
		if len(values) < padded(size) {
			return fmt.Errorf("%d bytes of values for %d rows of %d", len(values), len(item.index), p.size)
		}
		if err := p.take(item.index, values[:size]); err != nil {
			return err
		}
		values = values[padded(size):]
		v := &l.volumes[p.Variable]
		v.pulled.Add(uint64(len(item.index)))
		v.received.Add(uint64(item.size + padded(size)))
		rest -= item.size + padded(size)
	}
	if len(values) > 0 {
		return fmt.Errorf("%d bytes after the rows", len(values))
	}
	l.overhead(s, rest, func(v *volume, n uint64) { v.received.Add(n) })
	return nil
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

// bounds returns the rows of a piece.
func (l *link) bounds(at layout.Place) (lo, hi int64, ok bool) {
	now := l.holds.Load()
	i, ok := now.where[at]
	if !ok || l.client.d.Variable(at.Variable).Sparse == nil {
		return 0, 0, false
	}
	return int64(now.pieces[i].Offset), int64(now.pieces[i].Offset + now.pieces[i].Count), true
}

// wish tells this worker's own pieces what is wanted of them.
func (l *local) wish(a *asking) {
	for _, p := range a.own {
		l.rowsOf(p.Piece).Ask(a.step, p.index)
		l.volumes[p.Variable].pulled.Add(uint64(len(p.index)))
	}
}

func (l *local) rowsOf(p layout.Piece) *aggregate.Shard { return l.serves.Load().shards.At(p) }

// encodeWant returns a request, and the bytes of each portion in it.
func encodeWant(portions []portion) (body []byte, sizes []int) {
	body = binary.AppendUvarint(nil, uint64(len(portions)))
	for _, p := range portions {
		before := len(body)
		body = appendItem(body, layout.Place{Variable: p.Variable, Offset: p.Offset}, p.index)
		sizes = append(sizes, len(body)-before)
	}
	return body, sizes
}
