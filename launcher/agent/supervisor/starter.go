//go:build linux

package supervisor

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/launcher/agent/outputs"
	"github.com/plx-run/plx/launcher/agent/watchdog"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
)

// starter is the launcher that has started the agent. Beside the messages of the job it gets
// what other commands would have to be started for: the first logs if they are wanted, and at the
// end the count of what the job has made.
type starter struct {
	*parts
	logged chan struct{} // closed when the first logs were sent; nil: they are not wanted
	over   atomic.Bool   // nothing more is written to the logs
}

// meet begins to serve the launcher, which drives the job for now.
func (s *supervisor) meet(launcher *watchdog.Launcher) {
	l := newLink(launcher, protocol.Continue(launcher), true)
	if s.host.spec.Logs {
		s.starter.logged = make(chan struct{})
		go s.starter.tellLogs(l) // ends with the logs, or with the link
	}
	s.loop.background(func() { s.converse(l) })
}

// tellLogs sends the first logs of the job, no more than a launcher takes at once.
func (s *starter) tellLogs(l *link) {
	defer close(s.logged)
	_ = logs.Serve(context.Background(), s.host.folder.Logs(), logs.Request{TailLines: -1, Follow: true}, s.over.Load,
		&logged{l, protocol.EarlyLogs}) // the launcher sees what is missing
	l.transmit(protocol.Message{Logged: &protocol.Logged{Done: true}})
}

// logged sends bytes of the logs.
type logged struct {
	to   *link
	left int // bytes that may still be sent
}

var (
	errEnough = errors.New("a command is to bring the rest")
	errGone   = errors.New("the launcher is gone")
)

func (l *logged) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, errEnough
	}
	l.left -= len(p)
	if !l.to.transmit(protocol.Message{Logged: &protocol.Logged{Data: p}}) {
		return 0, errGone
	}
	return len(p), nil
}

// lastWords bounds what is sent after the end of a job: its last logs, and the count of files.
// It is well under what a driver takes for silence.
const lastWords = 2 * time.Second

// finish sends the last logs, and tells the driver what the job has made. If it does not, the
// launcher asks.
func (s *starter) finish() {
	s.over.Store(true)
	if s.logged != nil {
		within(lastWords, s.logged)
	}
	if s.sessions.driver == nil || s.host.spec.Detached {
		return
	}
	counted := make(chan protocol.Made, 1)
	go func() { // ends with the process
		defer close(counted)
		if _, made, err := outputs.Unfetched(s.host.folder); err == nil {
			counted <- made
		}
	}()
	select {
	case made, ok := <-counted:
		if ok {
			s.sessions.tell(protocol.Message{Made: &made})
		}
	case <-time.After(lastWords):
	}
}
