//go:build linux

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/agent/watchdog"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// maxVisitors bounds the visitors of one agent.
const maxVisitors = 256

// sessions are the connections of the driver and of visitors: plx attach, plx stop
// and plx scale.
type sessions struct {
	log      *log.Logger
	driver   *link          // connection of the present driver; nil: none is connected
	visitors map[*link]bool // connected visitors
}

// tell sends a message to the driver. Without one it is dropped; State repeats the
// fact to the next driver.
func (s *sessions) tell(m protocol.Message) {
	if s.driver != nil {
		s.driver.send(m)
	}
}

// notice sends a line for the user to the driver, and writes it to the log.
func (s *sessions) notice(text string) {
	s.log.Print(text)
	s.tell(protocol.Message{Notice: text})
}

// show sends a message to every visitor.
func (s *sessions) show(m protocol.Message) {
	for l := range s.visitors {
		l.send(m)
	}
}

// attach takes a link as the driver or a visitor and sends it the state. A new
// driver replaces the one before it.
func (s *sessions) attach(l *link, state protocol.State) {
	switch {
	case l.driver:
		if s.driver != nil {
			s.notice("another launcher has taken over")
			s.driver.finish()
		}
		s.driver = l
	case len(s.visitors) >= maxVisitors:
		l.finish()
		return
	default:
		s.visitors[l] = true
	}
	l.send(protocol.Message{State: &state})
}

// detach forgets a link.
func (s *sessions) detach(l *link, err error) {
	l.finish()
	delete(s.visitors, l)
	if s.driver == l {
		s.driver = nil
		s.log.Printf("the driver is gone: %v", err)
	}
}

// finishDriver sends what is queued for the driver and closes its link.
func (s *sessions) finishDriver() {
	if s.driver != nil {
		s.driver.finish()
	}
}

// finish does so for all links, and waits until they are closed, within bounds.
func (s *sessions) finish() {
	s.finishDriver()
	for l := range s.visitors {
		l.finish()
	}
	for l := range s.visitors {
		within(2*parting, l.sent)
	}
	if s.driver != nil {
		within(2*parting, s.driver.sent)
	}
}

// accept serves connections until ln is closed. admit authenticates a connection
// before anything else is read from it.
func (s *supervisor) accept(ln net.Listener, admit func(net.Conn) (net.Conn, error)) {
	for {
		conn, err := ln.Accept()
		if err == nil {
			go s.serve(conn, admit)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		s.host.log.Printf("accept on %s: %v", ln.Addr(), err)
		if within(s.pace(), s.loop.quit) { // descriptors may have run out: do not spin
			return
		}
	}
}

// serve serves one connection to its end.
func (s *supervisor) serve(raw net.Conn, admit func(net.Conn) (net.Conn, error)) {
	conn, err := admit(raw)
	if err != nil {
		s.refusals.add(s.host.log, raw.RemoteAddr(), err)
		raw.Close() // it has no right to an answer
		return
	}
	l, err := greet(conn)
	if err != nil {
		// An agent that only checks that it can reach this one hangs up.
		if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
			s.host.log.Printf("connection from %s: %v", conn.RemoteAddr(), err)
		}
		return
	}
	s.converse(l)
}

// converse serves a link to its end.
func (s *supervisor) converse(l *link) {
	go l.write()
	s.loop.do(func() { s.sessions.attach(l, s.snapshot()) })
	var err error
	for err == nil {
		var m protocol.Message
		if m, err = l.conn.Receive(); err == nil {
			s.loop.do(func() { s.handle(l, m) })
		}
	}
	close(l.received)
	s.loop.do(func() {
		if s.record.ending() && errors.Is(err, io.EOF) {
			return // it sends no more, but may still want to hear how the job ends
		}
		s.sessions.detach(l, err)
	})
}

// handle does what a message asks for. A driver that was replaced is not heard.
func (s *supervisor) handle(l *link, m protocol.Message) {
	switch {
	case s.sessions.visitors[l]:
		s.visited(l, m)
	case s.sessions.driver != l:
	case m.Attach != nil:
		state := s.snapshot()
		l.send(protocol.Message{State: &state})
	case m.Renew != nil:
		s.shutdown.renew(*m.Renew)
		l.send(protocol.Message{Renewed: m.Renew})
	case m.Prepare != nil:
		s.generation.prepare(*m.Prepare)
	case m.Check != nil: // dial the agents of other hosts and answer which could not be reached
		s.loop.background(func() {
			answer := &protocol.Checked{Generation: m.Check.Generation, Failures: s.host.identity.ReachAll(m.Check.Peers)}
			s.loop.do(func() { l.send(protocol.Message{Checked: answer}) })
		})
	case m.Look != nil:
		s.watch.look(l, *m.Look)
	case m.Start != nil:
		s.generation.start(*m.Start)
	case m.Checkpoint != nil && m.Checkpoint.Resume:
		s.checkpoint.resume(s.tasks.all[cluster.Chief], m.Checkpoint.Request)
	case m.Checkpoint != nil:
		s.checkpoint.ask(s.tasks.all[cluster.Chief], *m.Checkpoint)
	case m.Stop != nil:
		s.tasks.stop(*m.Stop)
	case m.Scaled != nil:
		s.sessions.show(m)
	case m.Drive != nil:
		s.driving.start(*m.Drive)
	case m.End != nil:
		s.shutdown.end(m.End.Verdict, m.End.Grace, "")
	}
}

// visited passes the wishes of a visitor to the driver. If there is none, a request
// to stop ends this host's part.
func (s *supervisor) visited(l *link, m protocol.Message) {
	alone := s.sessions.driver == nil || s.record.ending()
	why := s.host.driver() + " is not connected"
	if s.record.ending() {
		why = "the job is ending"
	}
	switch {
	case m.Look != nil:
		s.watch.look(l, *m.Look)
	case m.SpecAsk:
		spec := s.host.spec
		l.send(protocol.Message{Spec: &spec})
	case m.Scale != nil && alone:
		l.send(protocol.Message{Scaled: &protocol.Scaled{ID: m.Scale.ID, Cause: why}})
	case m.Scale != nil:
		s.sessions.tell(m)
	case m.Stop == nil:
	case !alone:
		s.sessions.tell(protocol.Message{StopAsk: m.Stop})
	default:
		v := protocol.Verdict{Code: m.Stop.Code, Reason: m.Stop.Reason}
		if m.Stop.SaveTime > 0 {
			v.Saved = &protocol.Saved{Cause: why}
		}
		s.shutdown.end(v, m.Stop.Grace, "the job was stopped")
	}
}

// Bounds of a connection. One that exceeds them is closed; State repeats the facts
// that were lost with it.
const (
	writing = 30 * time.Second // to send one message
	parting = time.Second      // for the other side to close after this one
	waiting = 1024             // messages that wait to be sent
)

// link is a connection of the driver or of a visitor.
type link struct {
	raw    interface{ SetWriteDeadline(time.Time) error }
	conn   *protocol.Conn // over raw
	driver bool           // the other side is the driver; false: a visitor

	out      chan protocol.Message // messages to send, at most waiting
	hurry    context.Context       // cancelled by finish
	finish   func()                // makes write send what is queued and then close the link; returns at once
	sent     chan struct{}         // closed when write has stopped sending
	received chan struct{}         // closed when reading has ended
}

// greet opens a connection and reads its Attach. On an error it closes raw.
func greet(raw net.Conn) (*link, error) {
	raw.SetDeadline(time.Now().Add(sockets.Greeting)) // a closed one fails at its first use
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
	return newLink(raw, conn, first.Attach.Driver), nil
}

func newLink(raw interface{ SetWriteDeadline(time.Time) error }, conn *protocol.Conn, driver bool) *link {
	l := &link{raw: raw, conn: conn, driver: driver,
		out: make(chan protocol.Message, waiting), sent: make(chan struct{}), received: make(chan struct{})}
	l.hurry, l.finish = context.WithCancel(context.Background())
	return l
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
// direction, and a socket once the other side has closed too: closing one while
// bytes of the other side are unread could destroy what was sent last.
func (l *link) write() {
	defer l.conn.Close()
	defer close(l.sent)
	for l.hurry.Err() == nil {
		select {
		case m := <-l.out:
			if !l.transmit(m) {
				return
			}
		case <-l.hurry.Done():
		}
	}
	for len(l.out) > 0 {
		if !l.transmit(<-l.out) {
			return
		}
	}
	if _, pipe := l.raw.(*watchdog.Launcher); pipe {
		return
	}
	if half, ok := l.raw.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails only on a connection that is gone
	}
	within(parting, l.received)
}

func (l *link) transmit(m protocol.Message) bool {
	l.raw.SetWriteDeadline(time.Now().Add(writing)) // sending fails on one that is closed
	return l.conn.Send(m) == nil
}
