//go:build linux

package supervisor

import (
	"log"

	"github.com/plx-run/plx/launcher/protocol"
)

// maxVisitors bounds the visitors of one agent.
const maxVisitors = 256

// sessions are the connections of the driver and of visitors: plx attach, plx stop
// and plx scale.
type sessions struct {
	log      *log.Logger
	driver   *link // nil: none is connected
	visitors map[*link]bool
}

func newSessions(log *log.Logger) *sessions {
	return &sessions{log: log, visitors: map[*link]bool{}}
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
