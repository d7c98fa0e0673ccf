package mesh

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// link is the connection to one other worker. One goroutine, read, reads.
type link struct {
	mesh *Mesh
	rank int
	addr string
	conn *wire.Conn
	over chan struct{} // closed when nothing is read any more

	// The next two hold what the peer announced, by sequence number modulo 2:
	// a peer is one collective ahead at most, as it cannot end one that is not
	// announced to it by all.
	said  [2]announcement
	eager [2][]byte // memory of the announcements' data

	heard  uint64        // sequence number of the last announcement; with mesh.mu
	left   bool          // the peer said goodbye; with mesh.mu
	gone   chan struct{} // closed when left is set
	parted bool          // this worker said goodbye; with mesh.mu
}

// announcement is a peer's word that it calls a collective.
type announcement struct {
	signature
	data []byte // what came with it
}

func newLink(m *Mesh, rank int, addr string, conn net.Conn) *link {
	return &link{
		mesh: m, rank: rank, addr: addr,
		conn: wire.NewConn(conn, m.config.Peers.Generation, m.config.Silence),
		over: make(chan struct{}), gone: make(chan struct{}),
	}
}

// blame makes an error of what this peer did or suffered.
func (l *link) blame(err error) error {
	var known *peers.PeerError
	if errors.As(err, &known) {
		return err
	}
	return &peers.PeerError{Task: task(l.rank), Addr: l.addr, Err: peers.Lost(err)}
}

// read takes what the peer sends until the connection ends.
func (l *link) read() {
	defer close(l.over)
	for {
		h, err := l.conn.Next()
		if err == nil {
			err = l.take(h)
		}
		if err == nil {
			continue
		}
		l.mesh.mu.Lock()
		left := l.left
		if !left {
			l.mesh.broken(l.blame(err))
		}
		l.mesh.mu.Unlock()
		if !errors.Is(err, errTold) {
			l.conn.Drain() // what this worker says must not be lost with the connection
		}
		return
	}
}

// errTold says that the peer's mesh is broken: no word of this worker's
// matters to it any more.
var errTold = errors.New("reported")

func (l *link) take(h wire.Header) error {
	switch h.Kind {
	case wire.Collective:
		return l.collective(h)
	case wire.Error:
		told, err := peers.ReadReport(l.conn, h)
		if err != nil {
			return err
		}
		var peer *peers.PeerError
		if !errors.As(told, &peer) {
			told = &peers.PeerError{Task: task(l.rank), Addr: l.addr, Err: told}
		}
		return fmt.Errorf("%s (%s) %w: %w", task(l.rank), l.addr, errTold, told)
	case wire.Bye:
		if h.Length == 0 {
			return l.bye()
		}
	}
	return fmt.Errorf("unexpected %s frame with %d bytes", h.Kind, h.Length)
}

// collective takes a frame of one.
func (l *link) collective(h wire.Header) error {
	msg, err := decode(h)
	if err != nil {
		return err
	}
	select {
	case <-l.mesh.failed:
		return l.skip(h.Length)
	default:
	}
	switch msg.part {
	case announce:
		return l.announced(msg, int(h.Length))
	case grant:
		return l.mesh.granted(l, msg)
	default:
		return l.mesh.data(l, msg, int(h.Length))
	}
}

// skip drops a payload: nobody waits for it any more.
func (l *link) skip(length uint64) error {
	b := make([]byte, min(length, 32<<10))
	for length > 0 {
		n := min(length, uint64(len(b)))
		if err := l.conn.Payload(b[:n]); err != nil {
			return err
		}
		length -= n
	}
	return nil
}

// announced takes the peer's word that it calls its next collective.
func (l *link) announced(msg message, length int) error {
	m := l.mesh
	m.mu.Lock()
	next, begun := l.heard+1, m.sequence
	m.mu.Unlock()
	if msg.sequence != next || next > begun+1 {
		return fmt.Errorf("announces collective %d after %d, this is worker:%d in its %d", msg.sequence, next-1, m.config.Rank, begun)
	}
	slot := next % 2
	if cap(l.eager[slot]) < length {
		l.eager[slot] = aligned(length)
	}
	l.eager[slot] = l.eager[slot][:length]
	if err := l.conn.Payload(l.eager[slot]); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l.said[slot] = announcement{msg.signature, l.eager[slot]}
	l.heard = next
	if r := m.current; r != nil && r.sequence == next {
		return r.hear(l)
	}
	return nil
}

// bye takes the peer's goodbye and answers it.
func (l *link) bye() error {
	m := l.mesh
	m.mu.Lock()
	if l.left {
		m.mu.Unlock()
		return errors.New("second goodbye")
	}
	l.left = true
	close(l.gone)
	if r := m.current; r != nil && r.needs(l) {
		m.broken(l.leaver(r.signature))
	}
	answer := !l.parted
	l.parted = true
	m.mu.Unlock()
	if answer {
		return l.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Bye}})
	}
	return nil
}

// leaver says that the peer has left before a collective.
func (l *link) leaver(s signature) error {
	return l.blame(fmt.Errorf("has left, it takes no part in %s: every worker must call the same collectives", s))
}

// goodbye tells the peer that this worker calls no more collectives, waits
// until that has arrived and hangs up.
func (l *link) goodbye() {
	m := l.mesh
	timer := time.AfterFunc(goodbye, func() { l.conn.Close() }) // ends Send and read
	defer timer.Stop()
	m.mu.Lock()
	answer := !l.parted
	l.parted = true
	m.mu.Unlock()
	var err error
	if answer {
		err = l.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Bye}})
	}
	if err == nil {
		select {
		case <-l.gone:
		case <-l.over:
		}
	}
	l.conn.Close() // it has no more use
	<-l.over
}

// tell says to the peer why the mesh is broken and hangs up.
func (l *link) tell(why error) {
	timer := time.AfterFunc(hangUp, func() { l.conn.Close() }) // ends Send and read
	defer timer.Stop()
	l.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Error}, Payload: peers.EncodeReport(why)}) // it may be dead
	<-l.over                                                                                         // the peer hangs up once it has read it
	l.conn.Close()                                                                                   // it has no more use
}
