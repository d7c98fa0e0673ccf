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

// starter serves the launcher process that has started this agent. It sends
// two things that the launcher would otherwise have to request. The first is
// the beginning of the logs, if the user wants to see them. The second, sent
// at the end, is the number of files that the job has made.
type starter struct {
	*parts
	logged chan struct{} // closed when this agent has sent the first bytes of the tasks' logs to the launcher; nil if the user wants no logs
	over   atomic.Bool   // true once the job has ended, so that the logs are complete
}

// serveLauncher begins to serve the launcher that started this agent. This
// launcher is the driver, the process that controls the job.
func (s *supervisor) serveLauncher(launcher *watchdog.Launcher) {
	l := newSession(launcher, protocol.Continue(launcher), true)
	if s.host.spec.Logs {
		s.starter.logged = make(chan struct{})
		go s.starter.sendLogs(l) // this goroutine ends when the logs were sent or the connection is closed
	}
	s.loop.background(func() { s.converse(l) })
}

// sendLogs sends the job's logs from their beginning, at most
// protocol.EarlyLogs bytes. The launcher gets all later bytes by running
// "agent logs".
func (s *starter) sendLogs(l *session) {
	defer close(s.logged)
	_ = logs.Serve(context.Background(), s.host.folder.Logs(), logs.Request{TailLines: -1, Follow: true}, s.over.Load,
		&logged{l, protocol.EarlyLogs}) // errors need no report: the launcher detects missing bytes
	l.transmit(protocol.Message{Logged: &protocol.Logged{Done: true}})
}

// logged is a writer that sends log bytes to the launcher, up to a limit.
type logged struct {
	to   *session
	left int // number of bytes that may still be sent
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

// finalTimeout is the timeout for each of the two things that are sent after
// the job has ended: the last logs, and the number of files. It is much
// shorter than the time without messages after which the driver gives up a
// host.
const finalTimeout = 2 * time.Second

// finish sends the last logs, and the number of files that the job has made.
// If counting takes too long, finish sends no number, and the launcher
// requests it.
func (s *starter) finish() {
	s.over.Store(true)
	if s.logged != nil {
		within(finalTimeout, s.logged)
	}
	if s.sessions.driver == nil || s.host.spec.Detached {
		return
	}
	counted := make(chan protocol.FileCounts, 1)
	go func() { // not waited for: if counting hangs, this goroutine runs on until the agent exits
		defer close(counted)
		if _, made, err := outputs.Unfetched(s.host.folder); err == nil {
			counted <- made
		}
	}()
	select {
	case made, ok := <-counted:
		if ok {
			s.sessions.sendToDriver(protocol.Message{Made: &made})
		}
	case <-time.After(finalTimeout):
	}
}
