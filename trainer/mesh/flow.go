package mesh

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/wire"
)

// hear notes that l's peer has come to the round and compares what it calls
// with what this worker calls. It needs the mesh's mutex.
func (r *round) hear(l *link) error {
	f, said := r.flows[l.rank], l.said[r.sequence%2]
	if said.signature != r.signature {
		return l.blame(mismatch(r.sequence, r.mesh.config.Rank, r.signature, task(l.rank), said.signature))
	}
	if f.told >= 0 && len(said.data) != f.told {
		return l.blame(fmt.Errorf("%s: announced with %d bytes, want %d", r.signature, len(said.data), f.told))
	}
	f.heard = true
	poke(f.wake)
	if f.total() == 0 {
		r.waiting--
		r.check()
	}
	return nil
}

// of returns the flow of the round that a frame from l belongs to. It needs
// the mesh's mutex.
func (m *Mesh) of(l *link, msg message) (*round, *flow, error) {
	r := m.current
	if r == nil || msg.sequence != r.sequence || !r.flows[l.rank].heard {
		return nil, nil, fmt.Errorf("%s frame of collective %d, this is worker:%d in its %d",
			operationNames[msg.op], msg.sequence, m.config.Rank, m.sequence)
	}
	if msg.op != r.op || msg.of != r.of || msg.root != r.root {
		return nil, nil, fmt.Errorf("%s frame in %s", operationNames[msg.op], r.signature)
	}
	return r, r.flows[l.rank], nil
}

// granted takes a peer's word how far this worker may send.
func (m *Mesh) granted(l *link, msg message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil
	}
	_, f, err := m.of(l, msg)
	if err != nil {
		return err
	}
	for _, o := range f.out {
		size := uint64(msg.of.size())
		if o.gated != byGrant || msg.offset <= uint64(f.allowed)/size || msg.offset > uint64(len(o.memory))/size {
			continue
		}
		f.allowed = int(msg.offset * size)
		poke(f.wake)
		return nil
	}
	return fmt.Errorf("grants %d elements in %s", msg.offset, msg.signature)
}

// place is where n bytes at an offset within the flow belong.
type place struct {
	inflow
	at   int // within the inflow
	into []byte
}

// expect says where the next data frame goes and refuses any other: offset and
// length are known before. It needs the mesh's mutex.
func (r *round) expect(l *link, f *flow, offset uint64, n int) (place, error) {
	begin := 0
	for _, in := range f.in {
		end := begin + in.size()
		if f.got >= end {
			begin = end
			continue
		}
		p := place{inflow: in, at: f.got - begin}
		want := min(chunkSize, end-f.got)
		if offset != uint64(f.got/r.of.size()) || n != want || in.add > 0 && p.at+n > f.asked {
			return place{}, fmt.Errorf("%s: %d bytes from element %d, want %d from %d", r.signature, n, offset, want, f.got/r.of.size())
		}
		if in.sent && p.at+n > f.sent {
			return place{}, fmt.Errorf("%s: a sum to which nothing was sent yet", r.signature)
		}
		if in.add > 0 {
			p.into = r.reducer.slot(l.rank, p.at, n)
		} else {
			p.into = in.memory[p.at : p.at+n]
		}
		return p, nil
	}
	return place{}, fmt.Errorf("%s: more than the %d bytes that belong to it", r.signature, f.got)
}

// data takes a chunk.
func (m *Mesh) data(l *link, msg message, n int) error {
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return l.skip(uint64(n))
	}
	r, f, err := m.of(l, msg)
	var p place
	if err == nil {
		p, err = r.expect(l, f, msg.offset, n)
	}
	if err != nil {
		m.mu.Unlock()
		return err
	}
	r.users.Add(1)
	defer r.users.Done()
	m.mu.Unlock()
	if p.sent && !r.awaitGone(f, p.at+n) {
		return l.skip(uint64(n))
	}
	if err := l.conn.Payload(p.into); err != nil {
		return err
	}
	m.mu.Lock()
	sum := r.took(f, p)
	m.mu.Unlock()
	if sum {
		r.reducer.add(p.at)
		m.mu.Lock()
		r.summed(p.at)
		m.mu.Unlock()
	}
	return nil
}

// awaitGone waits until so many bytes were sent and reports false when the mesh
// broke. An honest peer has them already, so it takes no time.
func (r *round) awaitGone(f *flow, bytes int) bool {
	for {
		r.mesh.mu.Lock()
		gone := f.gone
		r.mesh.mu.Unlock()
		if gone >= bytes {
			return true
		}
		select {
		case <-f.freed:
		case <-r.mesh.failed:
			return false
		}
	}
}

// took notes that a chunk has come and reports whether one is to be summed now.
// It needs the mesh's mutex.
func (r *round) took(f *flow, p place) (sum bool) {
	f.got += len(p.into)
	if f.got == f.total() {
		r.waiting--
		r.check()
	}
	if p.relay {
		r.available += len(p.into)
		r.poke()
	}
	return p.add > 0 && r.reducer.arrived(p.at)
}

// summed needs the mesh's mutex.
func (r *round) summed(at int) {
	if !r.reducer.done(at) {
		return
	}
	if r.reducer.summed == len(r.reducer.out) {
		r.waiting--
		r.check()
	}
	r.poke()
}

// poke wakes everyone that sends.
func (r *round) poke() {
	for _, f := range r.flows {
		if f != nil {
			poke(f.wake)
		}
	}
}

// send sends a peer what is its, as soon as it is there and has room.
func (r *round) send(f *flow) {
	for {
		r.mesh.mu.Lock()
		frame, more := r.next(f)
		r.mesh.mu.Unlock()
		switch {
		case !more:
			return
		case frame.Kind != 0:
			if err := f.link.conn.Send(frame); err != nil {
				r.mesh.fail(f.link.sendFailed(err))
				return
			}
			r.mesh.mu.Lock()
			f.gone = f.sent // it grows between two frames only
			r.mesh.mu.Unlock()
			poke(f.freed)
		default:
			select {
			case <-f.wake:
			case <-r.mesh.failed:
				return
			}
		}
	}
}

// next is what is to be sent now, nothing for the moment, or nothing any more.
// It needs the mesh's mutex.
func (r *round) next(f *flow) (frame wire.Frame, more bool) {
	if r.mesh.err != nil {
		return wire.Frame{}, false
	}
	if !f.heard {
		return wire.Frame{}, true
	}
	if r.reducer != nil {
		limit, all := r.reducer.limit(), len(r.reducer.out)
		if limit > f.asked && (limit == all || limit-f.asked >= r.reducer.first()/2) {
			f.asked = limit
			return r.frame(grant, limit, nil), true
		}
		more = f.asked < all
	}
	begin := 0
	for _, o := range f.out {
		at := f.sent - begin
		if at >= len(o.memory) {
			begin += len(o.memory)
			continue
		}
		n := min(chunkSize, len(o.memory)-at)
		if at+n > r.ready(f, o) {
			return wire.Frame{}, true
		}
		f.sent += n
		return r.frame(data, f.sent-n, o.memory[at:at+n]), true
	}
	return wire.Frame{}, more
}

// ready is how much of o may be sent.
func (r *round) ready(f *flow, o outflow) int {
	switch o.gated {
	case byGrant:
		return f.allowed
	case bySum:
		return r.reducer.summed
	case byRelay:
		return r.available
	}
	return len(o.memory)
}

func (r *round) frame(p part, at int, payload []byte) wire.Frame {
	msg := message{signature: r.signature, part: p, sequence: r.sequence, offset: uint64(at / r.of.size())}
	return wire.Frame{Header: msg.header(), Payload: payload}
}

// sendFailed gives the peer's own words a moment to arrive: it may have said
// why it hung up.
func (l *link) sendFailed(err error) error {
	timer := time.NewTimer(hangUp)
	defer timer.Stop()
	select {
	case <-l.mesh.failed:
	case <-timer.C:
	}
	return l.blame(err)
}
