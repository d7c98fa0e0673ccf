package ps

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// summaryEvery is how often strangers are worth a line to the user: whoever
// reaches the port could otherwise fill the terminal.
const summaryEvery = time.Minute

// strangers tells of connections that did not prove the job's secret: of the
// first at once, then of many in one line. Its methods may be called by any
// goroutine.
type strangers struct {
	logf func(level slog.Level, format string, args ...any)

	mu    sync.Mutex
	count int // since the last line
	last  string
	timer *time.Timer // runs for summaryEvery after a line
	ended bool
}

// refused notes a connection from addr, which err ended.
func (s *strangers) refused(addr net.Addr, err error) {
	s.logf(slog.LevelDebug, "refused %s: %s", addr, unproved(err))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	s.last = addr.String()
	if host, _, err := net.SplitHostPort(s.last); err == nil {
		s.last = host
	}
	if s.timer == nil && !s.ended {
		s.summarise()
	}
}

// summarise needs s.mu.
func (s *strangers) summarise() {
	if s.count == 1 {
		s.logf(slog.LevelInfo, "refused a connection that did not prove the job's secret, from %s", s.last)
	} else {
		s.logf(slog.LevelInfo, "refused %d connections that did not prove the job's secret, the last from %s", s.count, s.last)
	}
	s.count = 0
	s.timer = time.AfterFunc(summaryEvery, s.minute)
}

// minute tells what came since the last line.
func (s *strangers) minute() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	if s.count > 0 && !s.ended {
		s.summarise()
	}
}

// end makes sure that nothing more is told.
func (s *strangers) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// unproved says in words how a connection failed to prove itself.
func unproved(err error) string {
	switch {
	case errors.Is(err, cluster.ErrProof):
		return err.Error()
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "it did not prove the job's secret in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it hung up before it proved the job's secret"
	}
	return "connection lost before it proved the job's secret"
}
