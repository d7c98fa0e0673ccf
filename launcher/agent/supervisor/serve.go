//go:build linux

package supervisor

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// accept serves connections until ln is closed. check authenticates a connection
// before anything else is read from it.
func (s *supervisor) accept(ctx context.Context, ln net.Listener, check func(net.Conn) error) {
	for {
		conn, err := ln.Accept()
		if err == nil {
			go s.serve(conn, check)
			continue
		}
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return
		}
		s.host.log.Printf("accept on %s: %v", ln.Addr(), err)
		select { // descriptors may have run out: do not spin
		case <-ctx.Done():
			return
		case <-s.loop.quit:
			return
		case <-time.After(s.pace()):
		}
	}
}

// serve serves one connection to its end.
func (s *supervisor) serve(conn net.Conn, check func(net.Conn) error) {
	if err := check(conn); err != nil {
		s.host.log.Printf("connection from %s refused: %v", conn.RemoteAddr(), err)
		conn.Close() // it has no right to an answer
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
	go l.write()
	s.loop.do(func() { s.sessions.attach(l, s.snapshot()) })
	err = l.read(func(m protocol.Message) { s.loop.do(func() { s.handle(l, m) }) })
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
	case m.Check != nil:
		s.check(l, *m.Check)
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
	switch {
	case m.SpecAsk:
		spec := s.host.spec
		l.send(protocol.Message{Spec: &spec})
	case m.Scale != nil && alone:
		l.send(protocol.Message{Scaled: &protocol.Scaled{ID: m.Scale.ID, Cause: "nobody conducts the job"}})
	case m.Scale != nil:
		s.sessions.tell(m)
	case m.Stop == nil:
	case !alone:
		s.sessions.tell(protocol.Message{StopAsk: m.Stop})
	default:
		v := protocol.Verdict{Code: m.Stop.Code, Reason: m.Stop.Reason}
		if m.Stop.SaveTime > 0 {
			v.Saved = &protocol.Saved{Cause: "nobody conducts the job"}
		}
		s.shutdown.end(v, m.Stop.Grace, "the job was stopped")
	}
}

// check dials the agents of other hosts and answers which could not be reached.
func (s *supervisor) check(l *link, m protocol.Check) {
	s.loop.background(func() {
		answer := &protocol.Checked{Generation: m.Generation, Failures: s.host.identity().ReachAll(m.Peers)}
		s.loop.do(func() { l.send(protocol.Message{Checked: answer}) })
	})
}
