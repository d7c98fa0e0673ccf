package collective

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// exchange is one phase of a collective, in which each worker may send data to
// every other worker and receive data from it. The sender and the receiver
// know the lengths in advance.
type exchange struct {
	signature
	number    uint64 // number of the exchange, counted from 1 over the life of the group; the same on all workers
	group     *Group
	to        [][]byte        // the data to send to each worker, indexed by rank
	from      [][]byte        // memory for the data from each worker, indexed by rank
	announced []chan struct{} // channel for each worker, indexed by rank; closed when that worker has announced the exchange
	users     sync.WaitGroup  // counts the goroutines that read the field to or write the field from
	left      atomic.Int32    // number of other workers whose announcement or data has not arrived completely
	done      chan struct{}   // closed when left becomes 0, which means that all data has arrived
}

// exchange runs one exchange of a collective: it sends to[i] to the worker of
// rank i and receives from[i] from that worker. After it returns, no goroutine
// uses the memory of to and from. The caller holds g.calling.
func (g *Group) exchange(s signature, to, from [][]byte) error {
	world := len(g.config.Addrs)
	if world == 1 {
		return nil
	}
	e := &exchange{signature: s, number: g.begun + 1, group: g, to: to, from: from, announced: make([]chan struct{}, world), done: make(chan struct{})}
	for rank := range e.announced {
		e.announced[rank] = make(chan struct{})
	}
	e.left.Store(int32(world - 1))
	// Also after an error, wait until no goroutine uses the caller's memory
	// any more.
	defer e.users.Wait()
	err := g.begin(e)
	if err == nil {
		err = e.announce()
	}
	if err == nil {
		err = e.await()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.current = nil
	if err != nil {
		return g.broken(err)
	}
	return nil
}

// begin makes e the current exchange, so that the goroutines that read
// connections store data in it. It compares e with what other workers have
// announced already.
func (g *Group) begin(e *exchange) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return g.err
	}
	g.begun, g.current = e.number, e
	for _, l := range g.links {
		switch {
		case l == nil:
		case l.left:
			return l.leftError(e.signature)
		case l.announced == e.number:
			if err := e.match(l); err != nil {
				return err
			}
		}
	}
	return nil
}

// match checks that a peer has announced the same collective as this worker,
// and stores the data that came with the announcement. The caller holds the
// mutex mu of the group.
func (e *exchange) match(l *link) error {
	if l.called != e.signature {
		return l.Blame(fmt.Errorf("collective %d is %s there and %s on %s: every worker must call the same collectives, in the same order, with matching arguments",
			e.group.calls, l.called, e.signature, task(e.group.config.Rank)))
	}
	if err := l.fill(e.from[l.rank]); err != nil {
		return err
	}
	if e.number == 1 {
		l.SetPeerTimeout(e.group.config.Silence) // the peer sends heartbeats once it has called its first collective, so the shorter time limit applies from now on
	}
	close(e.announced[l.rank])
	if len(l.rest) == 0 {
		e.finish()
	}
	return nil
}

// needs reports whether some of the peer's announcement or data of this
// exchange is still missing. The caller holds the mutex mu of the group.
func (e *exchange) needs(l *link) bool {
	return l.announced < e.number || len(l.rest) > 0
}

// finish counts one more worker whose announcement and data have arrived
// completely.
func (e *exchange) finish() {
	if e.left.Add(-1) == 0 {
		close(e.done)
	}
}

// await waits until the data of all workers has arrived. It returns an error
// if the group breaks first.
func (e *exchange) await() error {
	select {
	case <-e.done:
		e.users.Wait()
	case <-e.group.failed:
	}
	return e.group.reason()
}

// announce sends the announcement of the exchange, with the first data, to all
// other workers. Goroutines then send the data that did not fit into the
// announcement.
func (e *exchange) announce() error {
	for rank, l := range e.group.links { // since the first exchange, group.links has a link to every other worker
		if l == nil {
			continue
		}
		first := e.to[rank][:min(early, len(e.to[rank]))]
		if err := l.Send(wire.Frame{Header: message{e.signature, e.number}.header(), Payload: first}); err != nil {
			return l.SendFailed(err)
		}
		if rest := e.to[rank][len(first):]; len(rest) > 0 {
			e.users.Go(func() { e.send(l, rest) })
		}
	}
	return nil
}

// send sends rest, the data that did not fit in the announcement, as soon as
// the peer has announced the exchange too.
func (e *exchange) send(l *link, rest []byte) {
	select {
	case <-e.announced[l.rank]:
	case <-e.group.failed:
		return
	}
	var err error
	for err == nil && len(rest) > 0 {
		select {
		case <-e.group.failed:
			return
		default:
		}
		n := min(chunkSize, len(rest))
		err = l.Send(wire.Frame{Header: message{number: e.number}.header(), Payload: rest[:n]})
		rest = rest[n:]
	}
	if err != nil {
		e.group.fail(l.SendFailed(err))
	}
}

// receive reads the peer's remaining data into rest. h is the header of the
// data's first frame, which was already read.
func (e *exchange) receive(l *link, rest []byte, h wire.Header) error {
	for {
		n := min(chunkSize, len(rest))
		if m, err := decode(h); err != nil || m != (message{number: e.number}) || h.Length != uint64(n) {
			return fmt.Errorf("%s: unexpected frame of %d bytes, want %d: %v", e.signature, h.Length, n, err)
		}
		if err := l.Payload(rest[:n]); err != nil {
			return err
		}
		if rest = rest[n:]; len(rest) == 0 {
			return nil
		}
		var err error
		if h, err = l.Next(); err != nil {
			return err
		}
	}
}

// link is the connection with one other worker.
type link struct {
	*peers.Session
	group *Group
	rank  int

	// The mutex mu of the group guards the fields below. A peer is at most one
	// exchange ahead of this worker, because it cannot complete an exchange
	// that this worker has not announced.
	called    signature // the collective that the peer announced last
	announced uint64    // number of the exchange that the peer announced last; zero means none
	early     []byte    // the data that came with the peer's last announcement
	rest      []byte    // memory for the data of the current exchange that the peer has not begun to send; nil means that no more data follows
	left      bool      // true once the peer has sent its goodbye
}

// read handles all frames of the peer until the connection ends or the group
// breaks.
func (l *link) read() {
	defer l.Drain()
	for {
		h, err := l.Next()
		if errors.Is(err, peers.ErrGoodbye) {
			l.handleGoodbye()
			return
		}
		if err == nil {
			err = l.take(h)
		}
		if err != nil {
			l.group.fail(l.Blame(err))
			return
		}
	}
}

func (l *link) take(h wire.Header) error {
	m, err := decode(h)
	switch {
	case err != nil:
		return err
	case m.op != 0:
		if err := l.checkNext(m); err != nil {
			return err
		}
		l.early = slices.Grow(l.early[:0], int(h.Length))[:h.Length]
		if err := l.Payload(l.early); err != nil {
			return err
		}
		return l.receive(m)
	default:
		return l.data(h)
	}
}

// checkNext returns an error unless m announces the exchange that directly
// follows the one that the peer announced last. If it returns nil, no
// goroutine reads the field early any more, so the caller may overwrite it.
func (l *link) checkNext(m message) error {
	g := l.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.number != l.announced+1 || m.number > g.begun+1 {
		return fmt.Errorf("announces exchange %d after %d, worker:%d is in its %d", m.number, l.announced, g.config.Rank, g.begun)
	}
	return nil
}

// receive handles the peer's announcement of its next exchange. The data that
// came with it is in field early.
func (l *link) receive(m message) error {
	g := l.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return g.err
	}
	l.called, l.announced = m.signature, m.number
	if e := g.current; e != nil && e.number == l.announced {
		return e.match(l)
	}
	return nil
}

// fill copies the data that came with the peer's announcement to the beginning
// of memory, the receive buffer for the peer's data.
func (l *link) fill(memory []byte) error {
	if want := min(early, len(memory)); len(l.early) != want {
		return l.Blame(fmt.Errorf("%s: announced with %d bytes, want %d", l.called, len(l.early), want))
	}
	l.rest = memory[copy(memory, l.early):]
	return nil
}

// data reads all data of the current exchange that the peer sends after its
// announcement. h is the header of the first frame.
func (l *link) data(h wire.Header) error {
	g := l.group
	g.mu.Lock()
	e := g.current
	switch {
	case g.err != nil:
		g.mu.Unlock()
		return g.err
	case e == nil || l.announced != e.number || len(l.rest) == 0:
		g.mu.Unlock()
		return fmt.Errorf("data of exchange %d, which worker:%d does not expect", h.Step, g.config.Rank)
	}
	rest := l.rest
	l.rest = nil
	// Add 1 while g.mu is locked, after the check that the group is not
	// broken. When the group breaks, the exchange calls users.Wait and so
	// waits for this goroutine.
	e.users.Add(1)
	g.mu.Unlock()
	defer e.users.Done()
	if err := e.receive(l, rest, h); err != nil {
		return err
	}
	e.finish()
	return nil
}

// handleGoodbye handles the peer's goodbye and replies to it.
func (l *link) handleGoodbye() {
	g := l.group
	g.mu.Lock()
	l.left = true
	if e := g.current; e != nil && e.needs(l) {
		g.broken(l.leftError(e.signature))
	}
	g.mu.Unlock()
	l.Bye() // an error does not matter: the peer closes the connection even if this reply does not arrive
}

// leftError returns the error for a peer that left before it called the
// collective s.
func (l *link) leftError(s signature) error {
	return l.Blame(fmt.Errorf("has left before %s: every worker must call the same collectives", s))
}
