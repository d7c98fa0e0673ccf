package mesh

import (
	"context"
	"fmt"
	"sync"

	"github.com/plx-run/plx/trainer/wire"
)

// round is one collective on its way. Its fields need the mesh's mutex, those
// above the line excepted, which do not change.
type round struct {
	signature
	sequence uint64
	mesh     *Mesh
	flows    []*flow // by rank; nil for this worker
	reducer  *reducer
	// -
	waiting   int            // peers that have not announced it or not sent all, and 1 for the sum
	available int            // bytes of what is relayed that are there; see outflow
	wake      chan struct{}  // a token: waiting is 0
	users     sync.WaitGroup // of the caller's memory; grows only while the mesh is sound
}

// flow is what a round exchanges with one peer, in order.
type flow struct {
	link  *link
	eager []byte // goes with the announcement
	told  int    // bytes that come with the peer's; -1: any number
	into  []byte // where they go at the end; nil: whoever asked looks at came
	in    []inflow
	out   []outflow

	heard   bool
	got     int           // bytes of in
	sent    int           // bytes of out that were begun to be sent
	gone    int           // bytes of out whose memory is free again
	allowed int           // bytes that the peer takes to be added
	asked   int           // bytes that this worker has told the peer to send to be added
	wake    chan struct{} // a token for whoever sends: look again
	freed   chan struct{} // a token for whoever reads: gone has grown
}

// inflow is memory that a peer fills, or size bytes of it that are added.
type inflow struct {
	memory []byte
	relay  bool // others wait for it
	sent   bool // it is the flow's first outflow as well: what is overwritten must be gone
	add    int
}

func (f inflow) size() int { return max(f.add, len(f.memory)) }

// outflow is memory that a peer gets: all of it, what the peer has room for, or
// what has come from others so far.
type outflow struct {
	memory []byte
	gated  gate
}

type gate uint8

const (
	open gate = iota
	byGrant
	bySum   // of the reducer
	byRelay // of an inflow
)

// run carries out one collective. plan says what is exchanged; its error, of
// wrong arguments, breaks the mesh as well, as the others wait.
func (m *Mesh) run(ctx context.Context, s signature, plan func(*round) error) (*round, error) {
	if !m.calling.TryLock() {
		return nil, m.fail(errConcurrent)
	}
	defer m.calling.Unlock()
	if err := m.sound(ctx, s); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { m.fail(ended(ctx, s)) })
	r, err := m.begin(s, plan)
	if err == nil {
		err = r.exchange()
	}
	m.mu.Lock()
	m.current = nil
	m.mu.Unlock()
	switch {
	case err != nil:
		err = m.fail(err)
	case !stop():
		err = m.fail(ended(ctx, s))
	}
	stop()
	if r != nil {
		r.users.Wait() // the memory is the caller's again
	}
	return r, err
}

func ended(ctx context.Context, s signature) error {
	return fmt.Errorf("%s: %w", s, context.Cause(ctx))
}

// sound makes sure that a collective is possible.
func (m *Mesh) sound(ctx context.Context, s signature) error {
	m.mu.Lock()
	err := m.err
	m.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s is not possible any more: %w", s, err)
	}
	if ctx.Err() != nil {
		return m.fail(ended(ctx, s))
	}
	if err := m.open(ctx); err != nil {
		return m.fail(err)
	}
	return nil
}

// begin makes the round known to the links.
func (m *Mesh) begin(s signature, plan func(*round) error) (*round, error) {
	r := &round{signature: s, mesh: m, wake: make(chan struct{}, 1), flows: make([]*flow, m.world())}
	for rank, l := range m.links { // complete and unchanged since it was opened
		if l != nil {
			r.flows[rank] = &flow{link: l, wake: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
			r.waiting++
		}
	}
	if err := plan(r); err != nil {
		return nil, fmt.Errorf("%s: %w", operationNames[s.op], err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, m.err
	}
	m.sequence++
	r.sequence = m.sequence
	m.current = r
	if r.reducer != nil && r.reducer.limit() > r.reducer.summed {
		r.waiting++
	}
	for _, f := range r.flows {
		if f == nil {
			continue
		}
		if r.reducer != nil {
			f.asked, f.allowed = r.reducer.limit(), r.reducer.first()
		}
		if f.link.left {
			return r, f.link.leaver(s)
		}
		if f.link.heard == r.sequence {
			if err := r.hear(f.link); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// exchange announces the round, sends and waits for everything to come.
func (r *round) exchange() error {
	if len(r.flows) == 1 {
		return nil
	}
	for _, f := range r.flows {
		if f == nil {
			continue
		}
		head := message{signature: r.signature, part: announce, sequence: r.sequence}.header()
		if err := f.link.conn.Send(wire.Frame{Header: head, Payload: f.eager}); err != nil {
			return f.link.sendFailed(err)
		}
	}
	r.mesh.mu.Lock()
	for _, f := range r.flows {
		if f != nil && (len(f.out) > 0 || r.reducer != nil) && r.mesh.err == nil {
			r.users.Go(func() { r.send(f) })
		}
	}
	r.check()
	r.mesh.mu.Unlock()
	select {
	case <-r.wake:
	case <-r.mesh.failed:
	}
	r.users.Wait()
	r.mesh.mu.Lock()
	defer r.mesh.mu.Unlock()
	if r.mesh.err != nil {
		return r.mesh.err
	}
	for rank, f := range r.flows {
		if f != nil && f.into != nil {
			copy(f.into, r.came(rank))
		}
	}
	return nil
}

// check needs the mesh's mutex.
func (r *round) check() {
	if r.waiting == 0 {
		poke(r.wake)
	}
}

func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default: // it will look anyway
	}
}

// came is what came with a peer's announcement.
func (r *round) came(rank int) []byte { return r.flows[rank].link.said[r.sequence%2].data }

// needs reports whether the round still waits for something from l. It needs
// the mesh's mutex.
func (r *round) needs(l *link) bool {
	f := r.flows[l.rank]
	return !f.heard || f.got < f.total()
}

// give and take add what the peer gets and what it fills, both with the
// announcement if it is little.
func (f *flow) give(b []byte, little bool) {
	if little {
		f.eager = b
		return
	}
	f.out = append(f.out, outflow{memory: b})
}

func (f *flow) take(b []byte, little bool) {
	if little {
		f.into, f.told = b, len(b)
		return
	}
	f.in = append(f.in, inflow{memory: b})
}

// total is how many bytes are to come after the announcement.
func (f *flow) total() (n int) {
	for _, in := range f.in {
		n += in.size()
	}
	return n
}
