package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// maxLinks bounds the connections of one agent.
const maxLinks = 256

// accept serves connections until ln is closed. check is done before anything
// is read.
func (s *supervisor) accept(ctx context.Context, ln net.Listener, check func(net.Conn) error) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
				return
			}
			s.log.Printf("accept on %s: %v", ln.Addr(), err)
			select { // out of descriptors, perhaps: not a loop that spins
			case <-ctx.Done():
				return
			case <-s.quit:
				return
			case <-time.After(s.pace()):
			}
			continue
		}
		go s.serve(conn, check)
	}
}

// serve is the life of one connection.
func (s *supervisor) serve(conn net.Conn, check func(net.Conn) error) {
	if err := check(conn); err != nil {
		s.log.Printf("connection from %s refused: %v", conn.RemoteAddr(), err)
		conn.Close() // refused, whatever it says
		return
	}
	l, err := greet(conn)
	if err != nil {
		// A peer that only checks that it can reach us hangs up.
		if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
			s.log.Printf("connection from %s: %v", conn.RemoteAddr(), err)
		}
		return
	}
	go l.write()
	s.do(func() { s.attach(l) })
	err = l.read(func(m protocol.Message) { s.do(func() { s.handle(l, m) }) })
	s.do(func() { s.detach(l, err) })
}

// attach takes a link as the conductor or a visitor and tells it the state.
func (s *supervisor) attach(l *link) {
	switch {
	case l.conductor:
		if s.conductor != nil {
			s.notice("another conductor has taken over")
			s.conductor.finish()
		}
		s.conductor = l
	case len(s.visitors) >= maxLinks:
		l.finish()
		return
	default:
		s.visitors[l] = true
	}
	snapshot := s.snapshot()
	l.send(protocol.Message{State: &snapshot})
}

// detach forgets a link that sends no more. While the agent ends it may still
// want to hear how.
func (s *supervisor) detach(l *link, err error) {
	if s.ending != nil && errors.Is(err, io.EOF) {
		return
	}
	l.finish()
	delete(s.visitors, l)
	if s.conductor == l {
		s.conductor = nil
		s.log.Printf("the conductor is gone: %v", err)
	}
}

// handle does what a message asks for. Only the present conductor may ask for
// all of it.
func (s *supervisor) handle(l *link, m protocol.Message) {
	if s.visitors[l] {
		s.visited(l, m)
		return
	}
	if s.conductor != l {
		return
	}
	switch {
	case m.Attach != nil:
		snapshot := s.snapshot()
		l.send(protocol.Message{State: &snapshot})
	case m.Renew != nil:
		s.renew(*m.Renew)
		l.send(protocol.Message{Renewed: m.Renew})
	case m.Prepare != nil:
		s.prepare(*m.Prepare)
	case m.Check != nil:
		s.check(l, *m.Check)
	case m.Start != nil:
		s.startTasks(*m.Start)
	case m.Checkpoint != nil:
		s.checkpoint(*m.Checkpoint)
	case m.Stop != nil:
		s.stop(*m.Stop)
	case m.Scaled != nil:
		for v := range s.visitors {
			v.send(m)
		}
	case m.Conduct != nil:
		s.conduct(*m.Conduct)
	case m.End != nil:
		s.end(m.End.Verdict, m.End.Grace, "")
	}
}

// visited passes a visitor's wishes to the conductor. Where nobody conducts and
// the job is to end, the agent ends its part.
func (s *supervisor) visited(l *link, m protocol.Message) {
	switch {
	case m.SpecAsk:
		spec := s.spec
		l.send(protocol.Message{Spec: &spec})
	case m.Scale != nil && (s.conductor == nil || s.ending != nil):
		l.send(protocol.Message{Scaled: &protocol.Scaled{ID: m.Scale.ID, Cause: "nobody conducts the job"}})
	case m.Scale != nil:
		s.tell(m)
	case m.Stop == nil:
	case s.conductor != nil && s.ending == nil:
		s.tell(protocol.Message{StopAsk: m.Stop})
	default:
		v := protocol.Verdict{Code: m.Stop.Code, Reason: m.Stop.Reason}
		if m.Stop.SaveTime > 0 {
			v.Saved = &protocol.Saved{Cause: "nobody conducts the job"}
		}
		s.end(v, m.Stop.Grace, "the job was stopped")
	}
}
