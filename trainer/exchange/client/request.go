package client

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// asking is one worker's request for the rows of a step. It is sent to all
// shard holders (tasks that store variables) that have some of these rows.
type asking struct {
	step   uint64
	own    []portion            // rows that this worker itself holds
	host   []message.RowRequest // rows to request through the first worker of the host, which requests rows for all workers there
	direct atomic.Bool          // true if the host's first worker cannot get the rows listed in the field host, so that this worker must request them itself
	left   atomic.Int32         // number of missing replies, plus 1 until all requests are sent
	done   chan struct{}        // closed after all replies have arrived
	then   func()               // called before done is closed; may be nil
}

func newAsking(step uint64, own []portion, host []message.RowRequest, then func()) *asking {
	a := &asking{step: step, own: own, host: host, then: then, done: make(chan struct{})}
	a.left.Store(1)
	return a
}

// answered counts a reply. After the last reply it calls the function in field
// then and closes done.
func (a *asking) answered() {
	if a.left.Add(-1) > 0 {
		return
	}
	if a.then != nil {
		a.then()
	}
	close(a.done)
}

// portion is the part of a request for rows that concerns one piece (range of
// rows) of a variable.
type portion struct {
	layout.Piece
	size  int     // size of a row in bytes
	index []int64 // requested rows, in ascending order
	into  []byte  // receives the values of the rows, one row after the other
	came  []bool  // indexed like index: true once the values of this row have arrived
	left  int     // number of rows whose values have not arrived yet
}

// portions splits requests for rows by piece (range of rows). It returns the
// portions for the given pieces.
func portions(d *layout.Declaration, pieces []layout.Piece, rows []message.RowRequest) (all []portion) {
	for _, p := range pieces {
		for _, w := range rows {
			if w.Variable != p.Variable {
				continue
			}
			from, _ := slices.BinarySearch(w.Index, int64(p.Offset))
			n, _ := slices.BinarySearch(w.Index[from:], int64(p.Offset+p.Count))
			if n == 0 {
				continue
			}
			size := d.Variables[p.Variable].UnitBytes()
			all = append(all, portion{
				Piece: p, size: size, index: w.Index[from : from+n], into: w.Into[from*size : (from+n)*size],
				came: make([]bool, n), left: n,
			})
		}
	}
	return all
}

// take copies the rows of a reply to the portion's memory. It fails if the
// reply contains a row that was not requested. index lists the rows of the
// reply.
func (p *portion) take(index []int64, values []byte) error {
	at := 0
	for _, row := range index {
		n, found := slices.BinarySearch(p.index[at:], row)
		if !found {
			return fmt.Errorf("row %d of variable %d, which was not requested", row, p.Variable)
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

// demand is the part of a worker's request for rows that goes to one shard
// holder (a task that stores variables).
type demand struct {
	asking   *asking
	portions []portion
	longest  int // largest valid payload of a reply, in bytes
}

// requests sends requests for rows to one shard holder (a task that stores
// variables), and handles the replies.
type requests struct {
	*holder
	jobs   chan<- job
	demand atomic.Pointer[demand] // request for the rows of a step, until its final reply arrives; nil if there is none
	pulls  *pulls
	body   []byte // buffer for a reply; only the goroutine that receives frames uses it
}

// prefetch sends a request for the rows of a step to the shard holder. The
// request is sent after all jobs that are already in the queue r.jobs.
func (r *requests) prefetch(a *asking, rows []portion) {
	a.left.Add(1)
	body := message.AppendCount(nil, len(rows))
	rest, longest := wire.HeaderSize+len(body), message.MaxHead(len(rows))
	for _, p := range rows {
		before := len(body)
		body = message.AppendRows(body, layout.Place{Variable: p.Variable, Offset: p.Offset}, p.index)
		longest += len(body) - before + message.Padded(len(p.into))
		r.volumes[p.Variable].sent.Add(uint64(len(body) - before))
	}
	s := &demand{asking: a, portions: rows, longest: longest}
	r.overhead(s, rest, func(v *volume, n uint64) { v.sent.Add(n) })
	r.demand.Store(s)
	r.jobs <- job{request: body, bucket: flush, step: a.step}
}

// overhead counts the bytes of a frame that belong to no row, such as its
// header. rest is the number of these bytes. They are divided equally among
// the requested pieces.
func (r *requests) overhead(s *demand, rest int, count func(v *volume, n uint64)) {
	n := len(s.portions)
	if n == 0 {
		count(&r.volumes[r.d.LossIndex()], uint64(rest))
	}
	for i, p := range s.portions {
		count(&r.volumes[p.Variable], uint64(rest*(i+1)/n-rest*i/n))
	}
}

// given handles a reply to a request for the rows of a step. An early reply
// comes while a step is running, the final reply after that step.
func (r *requests) given(f wire.Header) error {
	s := r.demand.Load()
	if s == nil || f.Step != s.asking.step || f.Length > uint64(s.longest) {
		return fmt.Errorf("%s rows of step %d, %d bytes, which this worker did not request", f.Kind, f.Step, f.Length)
	}
	r.body = slices.Grow(r.body[:0], int(f.Length))[:f.Length]
	began := time.Now()
	if err := r.session.Payload(r.body); err != nil {
		return err
	}
	if r.trace.Enabled() {
		r.trace.Span("receive", f.Kind.String()+" rows", began, time.Now(), "bytes", len(r.body), "from", r.session.Task.String())
	}
	if err := r.take(s, r.body); err != nil {
		return fmt.Errorf("%s rows: %w", f.Kind, err)
	}
	if f.Kind == wire.EarlyReply {
		return nil
	}
	if r.index < 0 && f.Part == message.Direct {
		s.asking.direct.Store(true)
	}
	for _, p := range s.portions {
		if p.left > 0 && !s.asking.direct.Load() {
			return fmt.Errorf("final rows: %d of variable %d did not come", p.left, p.Variable)
		}
	}
	r.demand.Store(nil)
	s.asking.answered()
	return nil
}

// take copies the rows in the payload of a reply to the memory of the request.
// It fails if the reply does not match the request.
func (r *requests) take(s *demand, body []byte) error {
	has := r.holds.Load()
	lists, values, err := message.DecodeRows(body, len(s.portions), func(at layout.Place) (lo, hi int64, ok bool) {
		return has.bounds(at, r.d)
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
			return fmt.Errorf("variable %d from row %d, which was not requested", rows.Variable, rows.Offset)
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
		v := &r.volumes[p.Variable]
		v.pulled.Add(uint64(len(rows.Index)))
		v.received.Add(uint64(rows.Size + message.Padded(size)))
		rest -= rows.Size + message.Padded(size)
	}
	if len(values) > 0 {
		return fmt.Errorf("%d bytes after the rows", len(values))
	}
	r.overhead(s, rest, func(v *volume, n uint64) { v.received.Add(n) })
	return nil
}

// pulls contains the worker's requests for current values of rows that have no
// reply yet, by number of the request.
type pulls struct {
	mu   sync.Mutex
	last uint32
	open map[uint32]*pull
}

// pull is a request for the current values of rows of one piece (range of
// rows).
type pull struct {
	variable int
	into     []byte        // receives the values of the rows
	done     chan struct{} // closed after the rows have arrived
}

// add stores a request for rows and returns the number by which take finds it.
func (p *pulls) add(w *pull) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.last++; p.open[p.last] != nil; p.last++ {
	}
	p.open[p.last] = w
	return p.last
}

// take removes the request for rows with the given number and returns it. It
// returns nil if there is none.
func (p *pulls) take(number uint32) *pull {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.open[number]
	delete(p.open, number)
	return w
}

// pull requests rows of a piece (range of rows). If index is not nil, it lists
// the rows. Otherwise pull requests consecutive rows from row first on, as
// many as fit into the memory into.
func (r *requests) pull(p layout.Piece, first int, index []int64, into []byte) (*pull, error) {
	var body []byte
	if index != nil {
		body = sparse.AppendIndex(nil, index)
	}
	r.volumes[p.Variable].sent.Add(uint64(wire.HeaderSize + len(body)))
	w := &pull{variable: p.Variable, into: into, done: make(chan struct{})}
	header := wire.Header{Kind: wire.Pull, Variable: uint32(p.Variable), Offset: uint64(p.Offset), Step: uint64(first), Part: r.pulls.add(w)}
	return w, r.session.Send(wire.Frame{Header: header, Payload: body})
}

// pulled reads the reply to a Pull message (a request for rows) into the
// memory that the request named.
func (r *requests) pulled(f wire.Header) error {
	w := r.pulls.take(f.Part)
	if w == nil || int(f.Variable) != w.variable || f.Length != uint64(len(w.into)) {
		return fmt.Errorf("rows of variable %d, %d bytes, which this worker did not request", f.Variable, f.Length)
	}
	if err := r.session.Payload(w.into); err != nil {
		return err
	}
	v := &r.volumes[f.Variable]
	v.pulled.Add(uint64(len(w.into) / r.d.Variables[f.Variable].UnitBytes()))
	v.received.Add(wire.HeaderSize + f.Length)
	close(w.done)
	return nil
}
