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

// maxVisitors is the maximum number of simultaneous connections of commands
// such as plx attach.
const maxVisitors = 256

// sessions are the open connections to this supervisor: one of the driver,
// which controls the job, and those of visitors, the commands plx attach, plx
// stop and plx scale.
type sessions struct {
	log      *log.Logger
	driver   *session          // connection of the driver, the process that controls the job; nil if no driver is connected
	visitors map[*session]bool // connected visitors
}

// sendToDriver sends a message to the driver. If no driver is connected, it
// drops the message: the next driver gets the same facts in its first message,
// State.
func (s *sessions) sendToDriver(m protocol.Message) {
	if s.driver != nil {
		s.driver.send(m)
	}
}

// notice logs a line, and sends it to the driver to be shown to the user.
func (s *sessions) notice(text string) {
	s.log.Print(text)
	s.sendToDriver(protocol.Message{Notice: text})
}

// show sends a message to every visitor, that is, to every connected command
// such as plx attach.
func (s *sessions) show(m protocol.Message) {
	for l := range s.visitors {
		l.send(m)
	}
}

// attach registers a new connection of the driver (the process that controls
// the job) or of a visitor (a command such as plx attach), and sends the
// current state on it. The connection of a new driver replaces that of the
// previous one.
func (s *sessions) attach(l *session, state protocol.State) {
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

// detach removes a connection that has ended.
func (s *sessions) detach(l *session, err error) {
	l.finish()
	delete(s.visitors, l)
	if s.driver == l {
		s.driver = nil
		s.log.Printf("the driver has disconnected: %v", err)
	}
}

// finishDriver sends the queued messages to the driver and then closes its
// connection.
func (s *sessions) finishDriver() {
	if s.driver != nil {
		s.driver.finish()
	}
}

// finish sends the queued messages on all connections and closes them. It
// waits for each connection until a timeout.
func (s *sessions) finish() {
	s.finishDriver()
	for l := range s.visitors {
		l.finish()
	}
	for l := range s.visitors {
		within(2*closeTimeout, l.writeDone)
	}
	if s.driver != nil {
		within(2*closeTimeout, s.driver.writeDone)
	}
}

// accept serves connections until ln is closed. The function admit
// authenticates a connection before any message is read from it.
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
		if within(s.tickInterval(), s.loop.quit) { // Accept may fail for lack of file descriptors: wait before the next attempt
			return
		}
	}
}

// serve authenticates one connection and serves it until it is closed.
func (s *supervisor) serve(raw net.Conn, admit func(net.Conn) (net.Conn, error)) {
	conn, err := admit(raw)
	if err != nil {
		s.refusals.add(s.host.log, raw.RemoteAddr(), err)
		raw.Close() // an unauthenticated client gets no reply
		return
	}
	l, err := greet(conn)
	if err != nil {
		// Another agent that only tests whether it can reach this agent
		// disconnects without a message. Do not log that.
		if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
			s.host.log.Printf("connection from %s: %v", conn.RemoteAddr(), err)
		}
		return
	}
	s.converse(l)
}

// converse handles the messages of one connection until it is closed.
func (s *supervisor) converse(l *session) {
	go l.write()
	s.loop.do(func() { s.sessions.attach(l, s.snapshot()) })
	var err error
	for err == nil {
		var m protocol.Message
		if m, err = l.conn.Receive(); err == nil {
			s.loop.do(func() { s.handle(l, m) })
		}
	}
	close(l.readDone)
	s.loop.do(func() {
		if s.record.ending() && errors.Is(err, io.EOF) {
			return // the client, a plx command, has closed only its sending side; it may still read the job's result
		}
		s.sessions.detach(l, err)
	})
}

// handle executes one message of the driver (the process that controls the
// job) or of a visitor (a command such as plx stop). If a new driver has
// replaced the driver that sent a message, handle ignores the message.
func (s *supervisor) handle(l *session, m protocol.Message) {
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
	case m.Check != nil: // the driver wants to know whether this host can connect to the agents of the given hosts
		s.loop.background(func() {
			answer := &protocol.Checked{Generation: m.Check.Generation, Failures: s.host.identity.ReachAll(m.Check.Peers)}
			s.loop.do(func() { l.send(protocol.Message{Checked: answer}) })
		})
	case m.Look != nil:
		s.watch.answerLook(l, *m.Look)
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

// visited handles a message of a visitor (such as plx stop): it forwards
// requests to the driver, the process that controls the job. If no driver is
// connected, a stop request ends the job on this host directly.
func (s *supervisor) visited(l *session, m protocol.Message) {
	alone := s.sessions.driver == nil || s.record.ending()
	why := s.host.driver() + " is not connected"
	if s.record.ending() {
		why = "the job is ending"
	}
	switch {
	case m.Look != nil:
		s.watch.answerLook(l, *m.Look)
	case m.SpecAsk:
		spec := s.host.spec
		l.send(protocol.Message{Spec: &spec})
	case m.Scale != nil && alone:
		l.send(protocol.Message{Scaled: &protocol.Scaled{ID: m.Scale.ID, Cause: why}})
	case m.Scale != nil:
		s.sessions.sendToDriver(m)
	case m.Stop == nil:
	case !alone:
		s.sessions.sendToDriver(protocol.Message{StopAsk: m.Stop})
	default:
		v := protocol.Verdict{Code: m.Stop.Code, Reason: m.Stop.Reason}
		if m.Stop.SaveTime > 0 {
			v.Saved = &protocol.Saved{Cause: why}
		}
		s.shutdown.end(v, m.Stop.Grace, "the job was stopped")
	}
}

// Limits of a connection. The supervisor closes a connection that exceeds a
// limit. If the client connects again, the supervisor first sends it State, the
// current state of the job on this host.
const (
	writeTimeout = 30 * time.Second // timeout for sending one message
	closeTimeout = time.Second      // timeout for the client to close its side after the supervisor has closed its own
	queueSize    = 1024             // maximum number of messages in the send queue
)

// session is an open connection to a client: the driver (the process that
// controls the job) or a visitor (a command such as plx attach).
type session struct {
	raw    interface{ SetWriteDeadline(time.Time) error }
	conn   *protocol.Conn // message protocol on top of raw
	driver bool           // true if the client is the driver, which controls the job

	out       chan protocol.Message // send queue, with room for 1024 messages (queueSize)
	finishing context.Context       // cancelled by finish, to make write stop
	finish    func()                // makes the method write send the queue and close the connection; returns at once
	writeDone chan struct{}         // closed when the method write has sent its last message
	readDone  chan struct{}         // closed when the method converse has received its last message
}

// greet begins a session on a new connection: it receives the first message,
// which must be Attach. On an error it closes the connection.
func greet(raw net.Conn) (*session, error) {
	raw.SetDeadline(time.Now().Add(sockets.GreetingTimeout)) // SetDeadline fails only on a closed connection, and then the next read fails too
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
		return nil, errors.Join(fmt.Errorf("accept a connection: %w", err), conn.Close())
	}
	return newSession(raw, conn, first.Attach.Driver), nil
}

func newSession(raw interface{ SetWriteDeadline(time.Time) error }, conn *protocol.Conn, driver bool) *session {
	l := &session{raw: raw, conn: conn, driver: driver,
		out: make(chan protocol.Message, queueSize), writeDone: make(chan struct{}), readDone: make(chan struct{})}
	l.finishing, l.finish = context.WithCancel(context.Background())
	return l
}

// send queues a message. If the queue is full, it closes the connection.
func (l *session) send(m protocol.Message) {
	select {
	case l.out <- m:
	default:
		l.conn.Close() // the receiving goroutine gets an error and reports it
	}
}

// write sends the queued messages until finish is called. It then sends the
// messages that are left in the queue and shuts down the sending side. It
// closes a socket only after the client has closed its side. Closing a TCP
// socket with unread input could discard output that the client has not
// received yet.
func (l *session) write() {
	defer l.conn.Close()
	defer close(l.writeDone)
	for l.finishing.Err() == nil {
		select {
		case m := <-l.out:
			if !l.transmit(m) {
				return
			}
		case <-l.finishing.Done():
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
		_ = half.CloseWrite() // an error means that the connection is already broken
	}
	within(closeTimeout, l.readDone)
}

func (l *session) transmit(m protocol.Message) bool {
	l.raw.SetWriteDeadline(time.Now().Add(writeTimeout)) // SetWriteDeadline fails only on a closed connection, and then Send fails too
	return l.conn.Send(m) == nil
}
