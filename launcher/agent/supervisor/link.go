//go:build linux

package supervisor

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
)

// Bounds of a connection. One that exceeds them is closed; State repeats the facts
// that were lost with it.
const (
	writing = 30 * time.Second // to send one message
	parting = time.Second      // for the other side to close after this one
	waiting = 1024             // messages that wait to be sent
)

// link is a connection of the driver or of a visitor.
type link struct {
	raw    net.Conn
	conn   *protocol.Conn
	driver bool // not a visitor

	out      chan protocol.Message // messages to send
	hurry    chan struct{}         // closed to send what is queued and then close
	once     sync.Once
	sent     chan struct{} // closed when nothing more is sent
	received chan struct{} // closed when nothing more is read
}

// greet opens a connection and reads its Attach. On an error it closes raw.
func greet(raw net.Conn) (*link, error) {
	if err := raw.SetDeadline(time.Now().Add(sockets.Greeting)); err != nil {
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
	return &link{raw: raw, conn: conn, driver: first.Attach.Driver,
		out: make(chan protocol.Message, waiting), hurry: make(chan struct{}),
		sent: make(chan struct{}), received: make(chan struct{})}, nil
}

// send queues a message. It closes a link whose queue is full.
func (l *link) send(m protocol.Message) {
	select {
	case l.out <- m:
	default:
		l.conn.Close() // the reader notices and reports it
	}
}

// write sends queued messages until finish is called. Then it closes its
// direction, and the connection once the other side has closed too: closing while
// bytes of the other side are unread could destroy what was sent last.
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

// flush sends what is left in the queue and closes this direction.
func (l *link) flush() {
	for len(l.out) > 0 {
		if !l.transmit(<-l.out) {
			return
		}
	}
	if half, ok := l.raw.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails only on a connection that is gone
	}
	within(parting, l.received)
}

func (l *link) transmit(m protocol.Message) bool {
	if err := l.raw.SetWriteDeadline(time.Now().Add(writing)); err != nil {
		return false
	}
	return l.conn.Send(m) == nil
}

// finish makes write send what is queued and close the link. It does not wait.
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
