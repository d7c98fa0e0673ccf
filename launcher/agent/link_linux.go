package agent

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// Bounds of a connection: for its first messages, for one that goes out, for
// the other side to close after us; and how many messages may wait. A
// connection that exceeds one is closed: State repeats what was lost with it.
const (
	greeting = 10 * time.Second
	writing  = 30 * time.Second
	parting  = time.Second
	waiting  = 1024
)

// link is a connection to a conductor or a visitor.
type link struct {
	raw       net.Conn
	conn      *protocol.Conn
	conductor bool

	out      chan protocol.Message
	hurry    chan struct{} // closed to end the sending
	once     sync.Once
	sent     chan struct{} // closed when write has ended
	received chan struct{} // closed when nothing more is read
}

// greet opens a connection and reads its Attach.
func greet(raw net.Conn) (*link, error) {
	if err := raw.SetDeadline(time.Now().Add(greeting)); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	conn, err := protocol.Open(raw)
	if err != nil {
		return nil, err
	}
	first, err := conn.Receive()
	if err == nil && first.Attach == nil {
		err = errors.New("the first message was not Attach")
	}
	if err == nil {
		err = raw.SetDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("greet a connection: %w", err), conn.Close())
	}
	return &link{raw: raw, conn: conn, conductor: first.Attach.Conductor,
		out: make(chan protocol.Message, waiting), hurry: make(chan struct{}),
		sent: make(chan struct{}), received: make(chan struct{})}, nil
}

// send queues a message. A link whose queue is full is closed.
func (l *link) send(m protocol.Message) {
	select {
	case l.out <- m:
	default:
		l.conn.Close() // the reader notices and reports it
	}
}

// write sends what is queued, until finish. It then closes its direction, and
// the rest once the other side has done so: closing while bytes of the other
// side are unread could destroy what was sent last.
func (l *link) write() {
	defer l.conn.Close()
	defer close(l.sent)
	for {
		select {
		case m := <-l.out:
			if !l.transmit(m) {
				return
			}
		case <-l.hurry:
			l.flush()
			return
		}
	}
}

// flush sends what is left in the queue and says that no more comes.
func (l *link) flush() {
	for {
		select {
		case m := <-l.out:
			if !l.transmit(m) {
				return
			}
			continue
		default:
		}
		break
	}
	if half, ok := l.raw.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // a connection that is gone needs none
	}
	within(parting, l.received)
}

func (l *link) transmit(m protocol.Message) bool {
	if err := l.raw.SetWriteDeadline(time.Now().Add(writing)); err != nil {
		return false
	}
	return l.conn.Send(m) == nil
}

// finish sends what is queued and then closes the link. It does not wait.
func (l *link) finish() { l.once.Do(func() { close(l.hurry) }) }

// read hands each message to f until there are no more.
func (l *link) read(f func(protocol.Message)) error {
	defer close(l.received)
	for {
		m, err := l.conn.Receive()
		if err != nil {
			return err
		}
		f(m)
	}
}
