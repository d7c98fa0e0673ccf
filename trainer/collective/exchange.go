package collective

import (
	"fmt"
	"sync"

	"github.com/plx-run/plx/trainer/wire"
)

// exchange is one round of a collective. Each worker may send data to every
// other worker and receive data from it. Both know the lengths beforehand.
type exchange struct {
	signature
	number uint64
	group  *Group
	to     [][]byte        // by rank: what that worker gets
	from   [][]byte        // by rank: where what that worker gives goes
	heard  []chan struct{} // by rank: closed when that worker has announced the exchange
	users  sync.WaitGroup  // of the memory

	mu   sync.Mutex
	left int           // workers of which an announcement or data are still to come
	done chan struct{} // closed when left is zero
}

// exchange makes one exchange of a collective; to and from are by rank. When
// it returns, nobody uses the memory any more. The caller holds g.calling.
func (g *Group) exchange(s signature, to, from [][]byte) error {
	if len(g.config.Addrs) == 1 {
		return nil
	}
	e := &exchange{signature: s, group: g, to: to, from: from, heard: make([]chan struct{}, len(g.config.Addrs)), done: make(chan struct{})}
	defer e.users.Wait() // whatever the error, before the caller has its memory back
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

// begin makes the exchange known to the links.
func (g *Group) begin(e *exchange) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return g.err
	}
	g.begun++
	g.current = e
	e.expect(g.begun, g.links)
	for _, l := range g.links {
		switch {
		case l == nil:
		case l.left:
			return l.leaver(e.signature)
		case l.heard == e.number:
			if err := e.hear(l); err != nil {
				return err
			}
		}
	}
	return nil
}

// expect numbers the exchange and counts what is to come.
func (e *exchange) expect(number uint64, links []*link) {
	e.number = number
	for rank, l := range links {
		if l == nil {
			continue
		}
		e.heard[rank] = make(chan struct{})
		e.left++
	}
}

// hear compares what a peer has announced with what this worker calls, and
// takes the data that came with the announcement. The caller holds the group's
// mu.
func (e *exchange) hear(l *link) error {
	if l.said != e.signature {
		return l.Blame(fmt.Errorf("collective %d is %s there and %s on %s: every worker must call the same collectives, in the same order, with matching arguments",
			e.group.calls, l.said, e.signature, task(e.group.config.Rank)))
	}
	if err := l.fill(e.from[l.rank]); err != nil {
		return err
	}
	if e.number == 1 {
		l.SetSilence(e.group.config.Silence) // both ends are in their first collective
	}
	close(e.heard[l.rank])
	if len(l.rest) == 0 {
		e.finish()
	}
	return nil
}

// needs reports whether something of a peer is still to come. The caller holds
// the group's mu.
func (e *exchange) needs(l *link) bool {
	return l.heard < e.number || len(l.rest) > 0
}

// finish counts a worker that has announced the exchange and sent all data.
func (e *exchange) finish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left--; e.left == 0 {
		close(e.done)
	}
}

// await returns when everything has come, or why the group is broken.
func (e *exchange) await() error {
	select {
	case <-e.done:
		e.users.Wait()
	case <-e.group.failed:
	}
	return e.group.reason()
}

// announce tells all peers of the exchange, and begins to send the data that
// does not fit in the announcements.
func (e *exchange) announce() error {
	for rank, l := range e.group.links { // complete since the first exchange
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

// send sends a peer the rest of what it gets, once the peer has announced the
// exchange too.
func (e *exchange) send(l *link, rest []byte) {
	select {
	case <-e.heard[l.rank]:
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

// receive reads the rest of what a peer gives; h is the header of the first
// frame.
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
